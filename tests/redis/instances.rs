//! Two receivers on one server act as one.

use axum::http::StatusCode;
use tower_webhook::Outcome;

use crate::redis::fixture::{pool, store};
use crate::redis::receiver::{Receiver, eventually};
use crate::support::checker::{Dice, Ledger};
use crate::support::servers::redis::RedisServer;

fn receivers(server: &RedisServer) -> [Receiver; 2] {
    let ledger = Ledger::default();
    [(), ()].map(|()| Receiver::patient(store(pool(server)), ledger.clone()))
}

/// Row 1, over two instances.
#[tokio::test(flavor = "multi_thread")]
async fn hundred_deliveries_of_one_event_run_it_once() {
    let server = RedisServer::start();
    let receivers = receivers(&server);
    receivers.iter().for_each(|receiver| receiver.handler.hold());
    let deliveries: Vec<_> = (0..100).map(|n| receivers[n % 2].spawn("evt_1")).collect();
    eventually("one of them runs", async || receivers.iter().any(|receiver| receiver.handler.runs() > 0)).await;
    receivers.iter().for_each(|receiver| receiver.handler.go());
    let mut completed = 0;
    for delivery in deliveries {
        let answer = delivery.await.expect("no panic");
        completed += usize::from(answer.outcome == Some(Outcome::Completed));
        assert!([StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE].contains(&answer.status), "{answer:?}");
    }
    let runs: usize = receivers.iter().map(|receiver| receiver.handler.runs()).sum();
    assert_eq!((runs, completed, server.keys().len()), (1, 1, 1));
    for receiver in &receivers {
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
        receiver.check(&server);
    }
}

/// Failures, too: what one gives back, the other may run.
#[tokio::test(flavor = "multi_thread")]
async fn event_released_by_one_is_run_by_the_other() {
    let server = RedisServer::start();
    let [one, other] = receivers(&server);
    one.handler.answers(500);
    assert_eq!(one.deliver("evt_1").await.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(server.keys().len(), 0);
    assert_eq!(other.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    assert_eq!(one.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    one.check(&server);
}

/// Connections break at random under traffic; every event is delivered to both until it is acknowledged.
#[tokio::test(flavor = "multi_thread")]
async fn broken_connections_under_traffic_neither_lose_nor_double() {
    let server = RedisServer::start();
    let receivers = receivers(&server);
    let seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    let senders: Vec<_> = (0..200)
        .map(|n| {
            let receiver = receivers[dice.below(2) as usize].clone();
            tokio::spawn(async move { receiver.deliver_until_acknowledged(&format!("evt_{}", n % 100)).await })
        })
        .collect();
    let runs = || receivers.iter().map(|receiver| receiver.handler.runs()).sum::<usize>();
    while runs() < 100 {
        let next = (runs() + dice.below(10) as usize).min(100);
        eventually("more of them have run", async || runs() >= next).await;
        server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    }
    for sender in senders {
        sender.await.expect("no panic");
    }
    for receiver in &receivers {
        receiver.settled().await;
    }
    assert_eq!((runs(), server.keys().len()), (100, 100), "seed {seed}");
    receivers[0].check(&server);
}
