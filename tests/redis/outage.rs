//! Rows 20 to 23: the server is away, stands still, or its replies do not arrive.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tower_webhook::Outcome;

use crate::redis::fixture::{pool, pool_of, store};
use crate::redis::receiver::{Receiver, assert_unavailable, eventually};
use crate::support::proxy::{Proxy, Weather};
use crate::support::servers::redis::RedisServer;

/// Well above the store's timeout and the claim deadline, and well below the lease.
const SOON: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread")]
async fn row_20_server_that_is_down_is_a_503_until_it_is_back() {
    let mut server = RedisServer::start();
    let warm = Receiver::on(&server);
    let cold = Receiver::patient(store(pool(&server)), warm.ledger.clone());
    assert_eq!(warm.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    server.kill();
    for receiver in [&cold, &warm] {
        let asked = Instant::now();
        for _ in 0..3 {
            assert_unavailable(&receiver.deliver("evt_1").await);
        }
        assert!(asked.elapsed() < SOON, "within the deadline");
    }
    assert_eq!((cold.handler.runs(), warm.handler.runs()), (0, 1), "the outage ran nothing");
    server.restart();
    for (receiver, id) in [(&cold, "evt_cold"), (&warm, "evt_warm")] {
        assert_eq!(receiver.deliver_until_acknowledged(id).await.outcome, Some(Outcome::Completed));
        receiver.settled().await;
        receiver.check(&server);
    }
}

/// The claim is in the server's hands when nobody waits for it any more. Its release is behind it.
#[tokio::test(flavor = "multi_thread")]
async fn row_21_claim_at_a_frozen_server_is_a_503_and_released_when_it_thaws() {
    let server = RedisServer::start();
    let receiver = Receiver::hasty(pool(&server));
    receiver.deliver("evt_0").await;
    receiver.store.check().await.expect("a server that works, and every connection");
    server.freeze();
    let asked = Instant::now();
    assert_unavailable(&receiver.deliver("evt_1").await);
    assert!(asked.elapsed() < SOON);
    receiver.settled().await;
    server.thaw();
    eventually("the claim is released", async || server.keys().len() == 1).await;
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 2);
    receiver.check(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_21_first_delivery_to_a_frozen_server_is_a_503() {
    let server = RedisServer::start();
    let receiver = Receiver::hasty(pool(&server));
    server.freeze();
    let asked = Instant::now();
    assert_unavailable(&receiver.deliver("evt_1").await);
    assert!(asked.elapsed() < SOON);
    server.thaw();
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 1);
    receiver.settled().await;
    receiver.check(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_22_claim_whose_reply_is_swallowed_is_a_503_and_released_by_its_token() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let receiver = Receiver::hasty(pool_of(&format!("redis://{}/", proxy.address)));
    receiver.store.check().await.expect("a server that works");
    proxy.set(Weather::SwallowReplies);
    assert_unavailable(&receiver.deliver("evt_1").await);
    receiver.settled().await;
    assert_eq!((receiver.handler.runs(), server.keys().len()), (0, 0), "claimed, and released though nobody was told");
    // No network loses some replies of a connection and delivers the next: it ends.
    proxy.cut();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 1);
    receiver.check(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_23_completion_that_the_server_missed_is_stored_when_it_is_back() {
    let mut server = RedisServer::start();
    let (receiver, elsewhere) = (Receiver::on(&server), Receiver::on(&server));
    receiver.handler.hold();
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    server.kill();
    receiver.handler.go();
    let answer = first.await.expect("no panic");
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)));
    for _ in 0..3 {
        let duplicate = receiver.deliver("evt_1").await;
        assert_eq!((duplicate.status, duplicate.outcome), (StatusCode::OK, Some(Outcome::Duplicate)), "known here");
    }
    server.restart();
    receiver.settled().await;
    // The server has even forgotten the claim, and yet: what was done is recorded.
    assert_eq!(elsewhere.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (1, 0));
    receiver.check(&server);
}
