//! Rows 40 and 43: a server that stands still.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tower_webhook::Outcome;
use tower_webhook::store::breaker::CircuitState;

use crate::breaker_servers::receiver::{FAILURES, Guarded};
use crate::support::logs::Logs;
use crate::support::servers::redis::RedisServer;

/// Far less than a hundred deliveries would wait for the store in turn, and far more than they take without it.
const AT_ONCE: Duration = Duration::from_secs(10);

/// How many claims the server has been asked for in all.
fn claims(server: &RedisServer) -> usize {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_set:calls=")?.split(',').next());
    calls.map_or(0, |calls| calls.parse().expect("a number"))
}

#[tokio::test]
async fn row_40_frozen_server_is_a_503_at_once_until_it_thaws() {
    let server = RedisServer::start();
    let guarded = Guarded::new(&server, |builder| builder);
    let receiver = &guarded.receiver;
    receiver.acknowledges("evt_0").await;
    let before = claims(&server);
    server.freeze();
    guarded.notices_the_outage().await;
    let asked = Instant::now();
    for number in 0..100 {
        receiver.is_refused(&format!("evt_{number}")).await;
    }
    assert!(asked.elapsed() < AT_ONCE, "{:?}: the server was not waited for", asked.elapsed());
    server.thaw();
    receiver.is_refused("evt_1").await;
    assert!(claims(&server) <= before + FAILURES, "what the open circuit refused was never sent");
    assert_eq!((guarded.circuit(), receiver.handler.runs()), (CircuitState::Open, 1), "nobody has tried it yet");

    guarded.cools_down_until("a probe", async || receiver.deliver("evt_1").await.status.is_success()).await;
    assert_eq!((guarded.circuit(), receiver.handler.runs()), (CircuitState::Closed, 2));
    assert_eq!(receiver.acknowledges("evt_1").await, Some(Outcome::Duplicate));
    receiver.acknowledges("evt_2").await;
    assert_eq!(receiver.handler.runs(), 3);
    receiver.settled().await;
    receiver.check_but_for(&[], &server);
}

#[tokio::test]
async fn row_43_one_probe_is_sent_to_a_frozen_server_for_a_thousand_waiters() {
    let (logs, _guard) = Logs::capture();
    let server = RedisServer::start();
    let guarded = Guarded::new(&server, |builder| builder);
    guarded.receiver.acknowledges("evt_0").await;
    let before = claims(&server);
    server.freeze();
    guarded.notices_the_outage().await;
    guarded.cools_down();
    let mut waiters = JoinSet::new();
    for number in 0..1_000 {
        let receiver = guarded.receiver.clone();
        waiters.spawn(async move { receiver.is_refused(&format!("evt_{number}")).await });
    }
    waiters.join_all().await;
    assert_eq!(logs.count("circuit is half open"), 1, "{:?}", logs.lines());
    assert_eq!((guarded.circuit(), logs.count("its circuit stays open")), (CircuitState::Open, 1));
    guarded.receiver.settled().await;
    server.thaw();
    assert!(claims(&server) <= before + FAILURES + 1, "one probe");

    guarded.cools_down_until("a probe", async || guarded.receiver.deliver("evt_x").await.status.is_success()).await;
    assert_eq!((guarded.circuit(), logs.count("its circuit is closed")), (CircuitState::Closed, 1));
    guarded.receiver.settled().await;
    guarded.receiver.check_but_for(&[], &server);
}
