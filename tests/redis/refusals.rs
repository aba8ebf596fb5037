//! Rows 30 and 31: the server answers, and refuses. Row 29 is in `out_of_memory`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::StatusCode;
use tokio::task::spawn_blocking;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;

use crate::redis::fixture::{pool, store};
use crate::redis::receiver::{Receiver, assert_refused, assert_unavailable, eventually};
use crate::support::servers::redis::RedisServer;

#[tokio::test(flavor = "multi_thread")]
async fn row_30_scripts_flushed_under_traffic_cost_nothing() {
    let server = RedisServer::start();
    let receiver = Receiver::on(&server);
    let elsewhere = Receiver::patient(store(pool(&server)), receiver.ledger.clone());
    let deliveries: Vec<_> = (0..300).map(|n| receiver.spawn(&format!("evt_{}", n % 100))).collect();
    for _ in 0..50 {
        server.command(&["SCRIPT", "FLUSH"]);
    }
    for delivery in deliveries {
        let answer = delivery.await.expect("no panic");
        let in_flight = answer.rejection() == Some(RejectionKind::InFlight);
        let done = matches!(answer.outcome, Some(Outcome::Completed | Outcome::Duplicate));
        assert!(
            done || in_flight,
            "stored at once, and not remembered here until the script is known again: {answer:?}"
        );
    }
    let keys = server.keys();
    assert_eq!((receiver.handler.runs(), keys.len()), (100, 100));
    for key in keys {
        let value = server.command(&["GET", &key]);
        assert!(value.starts_with("c:"), "{key} is not completed: {value}");
    }
    // Nor does whoever has never run a script here.
    server.command(&["SCRIPT", "FLUSH"]);
    for n in 0..100 {
        assert_eq!(elsewhere.deliver(&format!("evt_{n}")).await.outcome, Some(Outcome::Duplicate));
    }
    assert_eq!(elsewhere.handler.runs(), 0);
    receiver.check(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_31_busy_server_is_a_503() {
    let server = Arc::new(RedisServer::with(&["--busy-reply-threshold", "50"]));
    let receiver = Receiver::on(&server);
    receiver.store.check().await.expect("a server that works");
    let busy = server.clone();
    let running = spawn_blocking(move || busy.command(&["EVAL", "while true do end", "0"]));
    server.wait_until(&["PING"], "BUSY");
    assert_refused(&receiver, "BUSY").await;
    assert_unavailable(&receiver.deliver("evt_1").await);
    server.wait_until(&["SCRIPT", "KILL"], "OK");
    running.await.expect("no panic");
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 1);
    receiver.settled().await;
    receiver.check(&server);
}

#[tokio::test(flavor = "multi_thread")]
async fn row_31_loading_server_is_a_503() {
    let mut server = RedisServer::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let receiver = Receiver::on(&server);
    assert_eq!(receiver.deliver("evt_0").await.outcome, Some(Outcome::Completed));
    server.command(&["EVAL", "for n = 1, 50000 do redis.call('SET', 'filler' .. n, n) end", "0"]);
    server.kill();
    server.revive(&["--key-load-delay", "100"]);
    server.wait_until(&["GET", "filler1"], "LOADING");
    assert_refused(&receiver, "loading the dataset").await;
    assert_unavailable(&receiver.deliver("evt_1").await);
    assert_eq!(receiver.deliver_until_acknowledged("evt_0").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(receiver.handler.runs(), 2);
    receiver.settled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_31_sleeping_server_is_a_503_and_then_as_before() {
    let server = Arc::new(RedisServer::start());
    let receiver = Receiver::hasty(pool(&server));
    receiver.store.check().await.expect("a server that works");
    let asleep = server.clone();
    let sleeping = spawn_blocking(move || asleep.command(&["DEBUG", "SLEEP", "10"]));
    // It may not have fallen asleep yet, or only after a claim: then the event is done, and known here.
    let tries = AtomicUsize::new(0);
    let id = || format!("evt_{}", tries.fetch_add(1, Ordering::Relaxed));
    eventually("it sleeps", async || !receiver.deliver(&id()).await.status.is_success()).await;
    assert_eq!(sleeping.await.expect("no panic"), "OK\n");
    for n in 0..tries.load(Ordering::Relaxed) {
        assert_eq!(receiver.deliver_until_acknowledged(&format!("evt_{n}")).await.status, StatusCode::OK);
    }
    assert_eq!(receiver.handler.runs(), tries.load(Ordering::Relaxed));
    receiver.settled().await;
    receiver.check(&server);
}
