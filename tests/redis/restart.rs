//! Rows 24 and 25: what a crash of the server leaves.

use tower_webhook::Outcome;

use crate::redis::receiver::Receiver;
use crate::support::servers::redis::RedisServer;

/// The documentation says so.
#[tokio::test(flavor = "multi_thread")]
async fn row_24_server_without_a_file_forgets_and_the_event_runs_again() {
    let mut server = RedisServer::start();
    let receiver = Receiver::on(&server);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    server.kill();
    server.restart();
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_25_server_with_an_append_only_file_remembers() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let receiver = Receiver::on(&server);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    // A claim that is still running is kept, too.
    receiver.handler.hold();
    let running = receiver.spawn("evt_2");
    receiver.handler.started(2).await;
    server.kill();
    server.restart();
    let elsewhere = Receiver::on(&server);
    assert_eq!(elsewhere.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert!(elsewhere.deliver("evt_2").await.rejection().is_some(), "in flight");
    receiver.handler.go();
    assert!(running.await.expect("no panic").status.is_success());
    receiver.settled().await;
    assert_eq!(elsewhere.deliver("evt_2").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (2, 0));
    receiver.check(&server);
}
