//! Row 33, and what is left after the server was killed.

use futures_util::future::join_all;
use tower_webhook::Outcome;

use crate::postgres::fixture::{eventually, key};
use crate::postgres::receiver::{Receiver, assert_unavailable};
use crate::support::servers::postgres::PostgresServer;

#[tokio::test]
async fn completed_and_running_events_survive_a_kill() {
    let mut server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let ids: Vec<_> = (0..50).map(|n| format!("evt_{n}")).collect();
    for answer in join_all(ids.iter().map(|id| receiver.deliver(id))).await {
        assert_eq!(answer.outcome, Some(Outcome::Completed));
    }
    receiver.handler.hold();
    let running = receiver.spawn("evt_running");
    receiver.handler.started(51).await;
    server.kill();
    server.restart();
    receiver.handler.hold_no_more();

    let elsewhere = Receiver::with_pool(server.pool());
    for id in &ids {
        assert_eq!(
            elsewhere.deliver(id).await.outcome,
            Some(Outcome::Duplicate),
            "{id}: what was acknowledged is kept"
        );
    }
    let rejected = elsewhere.deliver("evt_running").await.rejection();
    assert_eq!(rejected, Some(tower_webhook::rejection::RejectionKind::InFlight), "its claim is, too");
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::Completed), "connected again by itself");
    assert_eq!(elsewhere.deliver("evt_running").await.outcome, Some(Outcome::Duplicate));
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (51, 0));
    receiver.check(&server).await;
}

#[tokio::test]
async fn row_33_server_killed_in_the_middle_of_a_claim_rolls_it_back() {
    let mut server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let fixture = receiver.fixture(&server);
    fixture
        .run(
            "CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN PERFORM pg_sleep(60); RETURN NEW; END $$;
         CREATE TRIGGER dawdle AFTER INSERT ON events FOR EACH ROW EXECUTE FUNCTION dawdle()",
        )
        .await;
    let delivery = receiver.spawn("evt_1");
    let inserting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'";
    eventually("the row is written and not committed", async || fixture.count(inserting).await == 1).await;
    server.kill();
    assert_unavailable(&delivery.await.expect("no panic"));
    receiver.settled().await;
    server.restart();
    eventually("connected again", async || sqlx::query("SELECT 1").execute(&fixture.pool).await.is_ok()).await;
    fixture.run("DROP TRIGGER dawdle ON events").await;
    assert_eq!(fixture.state(&key("evt_1")).await, None, "rolled back");
    assert_eq!(receiver.handler.runs(), 0);
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 1);
    receiver.check(&server).await;
}
