//! Rows 41 and 42: a server that is killed, and events that are handled without it.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::store::breaker::{CircuitState, FoundInStore};

use crate::breaker_servers::receiver::Guarded;
use crate::support::key;
use crate::support::servers::redis::RedisServer;

const EVENTS: usize = 20;

fn events() -> impl Iterator<Item = String> {
    (0..EVENTS).map(|number| format!("evt_{number}"))
}

#[tokio::test]
async fn row_41_events_are_handled_without_the_server_and_recorded_when_it_is_back() {
    let mut server = RedisServer::start();
    let guarded = Guarded::new(&server, |builder| builder.fallback_may_double(1_000));
    let (receiver, elsewhere) = (&guarded.receiver, guarded.receiver.another(&server));
    receiver.acknowledges("before").await;
    server.kill();
    guarded.notices_the_outage().await;
    for id in events() {
        let answer = receiver.deliver(&id).await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Completed)));
        assert_eq!(receiver.deliver(&id).await.outcome, Some(Outcome::Duplicate), "once on this instance");
    }
    assert_eq!(receiver.deliver("before").await.outcome, Some(Outcome::Duplicate), "done here before the outage");
    elsewhere.is_refused("evt_0").await;
    assert_eq!(guarded.breaker.stats().unreconciled, EVENTS);

    server.restart();
    assert_eq!(server.keys(), Vec::<String>::new(), "it has forgotten everything");
    // The server knows nothing of it before the journal is told.
    elsewhere.acknowledges("evt_7").await;
    assert_eq!(elsewhere.handler.runs(), 1);
    elsewhere.settled().await;
    let record = || server.command(&["GET", &format!("tower-webhook:{}", key("evt_7").as_str())]);
    let theirs = record();
    assert!(theirs.starts_with("c:"), "completed: {theirs}");
    guarded.cools_down_until("the journal", async || guarded.breaker.stats().unreconciled == 0).await;
    assert_eq!(guarded.circuit(), CircuitState::Closed);

    let conflicts = guarded.conflicts();
    assert_eq!(conflicts.len(), 1, "{conflicts:?}");
    let conflict = &conflicts[0];
    assert_eq!((conflict.key.id(), conflict.found, conflict.same_body), ("evt_7", FoundInStore::Completed, true));
    assert_ne!(conflict.token, elsewhere.handler.started(1).await.token(), "it is told under the token of this side");
    assert_eq!(record(), theirs, "the other's record, with its token, is not overwritten");
    for id in events() {
        for instance in [receiver, &elsewhere] {
            assert_eq!(instance.acknowledges(&id).await, Some(Outcome::Duplicate), "{id} is on record");
        }
    }
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (EVENTS + 1, 1));
    assert_eq!(server.keys().len(), EVENTS);
    receiver.check_but_for(&["evt_7"], &server);
}

/// A handler that runs when the server is killed keeps its claim, and its completion is stored later.
#[tokio::test]
async fn handler_that_outlives_the_server_is_recorded_when_it_is_back() {
    let mut server = RedisServer::start();
    let guarded = Guarded::new(&server, |builder| builder.fallback_may_double(1_000));
    let (receiver, elsewhere) = (guarded.receiver.clone(), guarded.receiver.another(&server));
    receiver.handler.hold();
    let delivering = receiver.clone();
    let running = tokio::spawn(async move { delivering.acknowledges("evt_1").await });
    receiver.handler.started(1).await;
    server.kill();
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic"), Some(Outcome::CompletionPending));
    server.restart();
    let drained = receiver.layer.drain_handle().drain(Duration::from_secs(60)).await;
    assert_eq!((drained.dropped, elsewhere.acknowledges("evt_1").await), (0, Some(Outcome::Duplicate)));
    assert_eq!((receiver.handler.runs(), elsewhere.handler.runs()), (1, 0));
    receiver.check_but_for(&[], &server);
}
