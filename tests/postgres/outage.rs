//! Rows 20 to 23 on Postgres: a server that is away, hangs, loses replies, or dies at the worst moment.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Store, StoreErrorKind};

use crate::postgres::fixture::{Fixture, WEEK, eventually, key, run_on, shared};
use crate::postgres::receiver::{Receiver, assert_unavailable};
use crate::support::proxy::{Proxy, Weather};
use crate::support::servers::postgres::PostgresServer;

/// The claim deadline is 2 s; this machine may be busy, and what hangs never comes.
const WELL_WITHIN: Duration = Duration::from_secs(20);

const WARM: usize = 16;

/// Delivers so many that all connections are made.
async fn warm(receiver: &Receiver) {
    for n in 0..WARM {
        assert_eq!(receiver.deliver(&format!("warm_{n}")).await.outcome, Some(Outcome::Completed));
    }
}

#[tokio::test]
async fn row_20_server_that_is_down_is_a_503_until_it_is_back() {
    let mut server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    server.kill();
    for _ in 0..3 {
        let asked = Instant::now();
        assert_unavailable(&receiver.deliver("evt_1").await);
        assert!(asked.elapsed() < WELL_WITHIN);
    }
    assert_eq!(receiver.handler.runs(), 1);
    server.restart();
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed), "connected again by itself");
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Duplicate));
    receiver.settled().await;
    receiver.check(&server).await;
}

#[tokio::test]
async fn row_21_server_that_hangs_is_a_503_at_the_deadline_and_hangs_nobody_after() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    server.stop();
    let asked = Instant::now();
    let deliveries: Vec<_> = (1..=8).map(|n| receiver.spawn(&format!("evt_{n}"))).collect();
    for delivery in deliveries {
        assert_unavailable(&delivery.await.expect("no panic"));
    }
    assert!(asked.elapsed() < WELL_WITHIN);
    assert_eq!(receiver.handler.runs(), 1);
    // What the server had read by then it may still do; the claims are released, or their leases end.
    receiver.settled().await;
    server.go_on();
    receiver.deliver_until_acknowledged("evt_9").await;
    let fixture = receiver.fixture(&server);
    fixture.pass(WEEK).await;
    for n in 1..=8 {
        receiver.deliver_until_acknowledged(&format!("evt_{n}")).await;
    }
    receiver.check(&server).await;
}

/// The store by itself, whose deadline is less than the layer's.
#[tokio::test]
async fn row_21_batch_past_its_deadline_is_told_that_it_timed_out() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    server.stop();
    let key = key("evt_1");
    let claim = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
    let asked = Instant::now();
    assert_eq!(receiver.store.claim(&claim).await.expect_err("no answer").kind(), StoreErrorKind::TimedOut);
    assert_eq!(receiver.store.renew(&claim).await.expect_err("no answer").kind(), StoreErrorKind::TimedOut);
    assert!(asked.elapsed() < WELL_WITHIN);
    server.go_on();
    eventually("an answer", async || receiver.store.claim(&claim).await.is_ok()).await;
}

/// The claim took effect, and nobody knows. Its token is released, and the retry need not wait for the lease.
#[tokio::test]
async fn row_22_claim_whose_reply_is_swallowed_is_a_503_and_the_retry_runs() {
    let server = PostgresServer::start();
    let proxy = Proxy::before(server.address()).await;
    let receiver = Receiver::with_pool(server.pool_at(proxy.address));
    receiver.store.migrate().await.expect("a table");
    warm(&receiver).await;
    proxy.set(Weather::SwallowReplies);
    let delivery = receiver.spawn("evt_1");
    let fixture = receiver.fixture(&server);
    eventually("the claim took effect", async || fixture.state(&key("evt_1")).await.is_some()).await;
    assert_unavailable(&delivery.await.expect("no panic"));
    assert_eq!(receiver.handler.runs(), WARM);
    receiver.settled().await;
    assert_eq!(
        fixture.state(&key("evt_1")).await.as_deref(),
        Some("released"),
        "the request arrived, its reply did not"
    );
    proxy.set(Weather::Fair);
    let answer = receiver.deliver_until_acknowledged("evt_1").await;
    assert_eq!(answer.outcome, Some(Outcome::Completed));
    receiver.check(&server).await;
}

#[tokio::test]
async fn row_22_connection_that_is_cut_in_the_middle_of_a_claim_is_made_again() {
    let server = PostgresServer::start();
    let proxy = Proxy::before(server.address()).await;
    let receiver = Receiver::with_pool(server.pool_at(proxy.address));
    receiver.store.migrate().await.expect("a table");
    warm(&receiver).await;
    proxy.set(Weather::SwallowReplies);
    let delivery = receiver.spawn("evt_1");
    let fixture = receiver.fixture(&server);
    eventually("the claim took effect", async || fixture.state(&key("evt_1")).await.is_some()).await;
    // Asked again under the same token, it finds its own claim.
    proxy.cut();
    assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    let attempts = format!("SELECT attempts::bigint FROM events WHERE key = '{}'", key("evt_1").as_str());
    assert_eq!(fixture.count(&attempts).await, 1, "and did not take it over");
    assert_eq!(receiver.handler.runs(), WARM + 1);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    receiver.check(&server).await;
}

#[tokio::test]
async fn row_23_server_that_dies_after_the_effect_is_told_of_it_later() {
    let mut server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    receiver.handler.hold();
    let delivery = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    server.kill();
    receiver.handler.go();
    let answer = delivery.await.expect("no panic");
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)));
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "remembered here meanwhile");
    server.restart();
    receiver.settled().await;
    let elsewhere = Receiver::with_pool(server.pool());
    assert_eq!(elsewhere.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "and there now");
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (1, 0));
    receiver.check(&server).await;
}

/// Servers and what is between close connections that are idle; a delivery must not pay for it.
#[tokio::test]
async fn connection_that_was_closed_while_idle_costs_no_delivery() {
    let server = PostgresServer::start();
    let receiver = Receiver::on(&server).await;
    let mut operator = server.connect().await;
    for n in 0..5 {
        let answer = receiver.deliver(&format!("evt_{n}")).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{n}");
        let ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'tower-webhook%'";
        assert!(run_on(&mut operator, ended.to_owned()).await >= 2, "claims and settlements have their own");
    }
    receiver.check(&server).await;
}

/// Each runtime has its own I/O: a connection does not outlive the one it was made on.
#[test]
fn store_outlives_the_runtime_it_was_first_used_on() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let fixture = runtime().block_on(Fixture::on(shared()));
    // A pool does not outlive its runtime so well; the store's own connections are what matters here.
    for n in 0..3 {
        let key = key(&n.to_string());
        let claim = fixture.claim(&key, ClaimToken::random());
        let answer = runtime().block_on(fixture.store.claim(&claim)).expect("an answer");
        assert_eq!(answer, Claim::Fresh { attempt: Some(1) });
    }
}
