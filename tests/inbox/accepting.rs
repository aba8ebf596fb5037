//! What the sender sees, and what is kept.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use tower_webhook::queue::{EventState, Filter, Page, Queue};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{Outcome, WebhookLayer};

use crate::inbox::fixture::Fixture;

#[tokio::test]
async fn accepted_delivery_is_answered_before_its_handler_runs() {
    let fixture = Fixture::new();
    let answer = fixture.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Accepted)));
    assert_eq!(fixture.handler.runs(), 0);
    fixture.is_in("evt_1", EventState::Waiting).await;
    assert_eq!(fixture.worker().run_until_idle().await, 1);
    assert_eq!(fixture.handler.runs(), 1);
    fixture.is_in("evt_1", EventState::Completed).await;
}

#[tokio::test]
async fn duplicate_is_answered_whether_its_event_waits_runs_or_is_done() {
    let fixture = Fixture::new();
    fixture.handler.hold();
    fixture.accepts(&fixture.event("evt_1")).await;
    let is_duplicate = async || {
        let answer = fixture.deliver("evt_1").await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Duplicate)));
    };
    is_duplicate().await;
    let working = tokio::spawn({
        let worker = fixture.worker();
        async move { worker.run_until_idle().await }
    });
    fixture.handler.started(1).await;
    is_duplicate().await;
    fixture.handler.go();
    assert_eq!(working.await.expect("no panic"), 1);
    is_duplicate().await;
    assert_eq!(fixture.worker().run_until_idle().await, 0);
    assert_eq!(fixture.handler.runs(), 1);
}

#[tokio::test]
async fn other_success_can_be_answered_and_no_failure() {
    let fixture = Fixture::with_inbox(|inbox| inbox.accepted_status(StatusCode::ACCEPTED).expect("a success"));
    let answer = fixture.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::ACCEPTED, Some(Outcome::Accepted)));
    for status in [StatusCode::FOUND, StatusCode::INTERNAL_SERVER_ERROR] {
        assert!(tower_webhook::inbox::Inbox::new(fixture.inbox.clone()).accepted_status(status).is_err());
    }
}

#[tokio::test]
async fn what_is_refused_is_not_kept() {
    let fixture = Fixture::new();
    for request in [
        fixture.event("evt_1").tampered().request_as(),
        fixture.event("evt_1").aged(Duration::from_secs(400)).request_as(),
        fixture.event("evt_1").method(Method::PUT).request_as(),
        fixture.sender.deliver("{}").request_as(),
    ] {
        let answer = fixture.send(request).await;
        assert!(matches!(answer.outcome, Some(Outcome::Refused(_))) || answer.status == 405, "{answer:?}");
    }
    let kept = fixture.inbox.list(&Filter::all(), &Page::first(10)).await.expect("a list");
    assert_eq!(kept, []);
}

#[tokio::test]
async fn events_without_an_id_are_kept_at_every_delivery() {
    let fixture = Fixture::configured(|layer| layer.id_source(tower_webhook::identity::IdSource::none()));
    for _ in 0..3 {
        fixture.accepts(&fixture.event("evt_1")).await;
    }
    assert_eq!(fixture.worker().run_until_idle().await, 3);
    assert!(!fixture.handler.started(1).await.is_deduplicated());
    let counts = fixture.inbox.counts().await.expect("counts");
    assert_eq!((counts.waiting, counts.completed), (0, 3));
}

#[tokio::test]
async fn replay_guard_stands_before_the_inbox() {
    let unsigned = tower_webhook::identity::IdSource::unsigned_header("x-id").expect("a header");
    let hour = Duration::from_secs(3600);
    let fixture = Fixture::configured(|layer| layer.id_source(unsigned).replay_guard(hour).expect("a window"));
    let delivery = |id| fixture.sender.deliver(r#"{"type":"a"}"#).header("x-id", id);
    fixture.accepts(&delivery("one")).await;
    let again = fixture.send(delivery("one").request_as()).await;
    assert_eq!(again.outcome, Some(Outcome::Duplicate));
    let replayed = fixture.send(delivery("two").request_as()).await;
    assert_eq!(replayed.rejection(), Some(RejectionKind::Replayed));
    assert_eq!(fixture.worker().run_until_idle().await, 1);
}

#[tokio::test]
async fn other_body_under_the_same_id_is_a_duplicate_or_refused() {
    let fixture = Fixture::configured(WebhookLayer::refuse_changed_bodies);
    fixture.accepts(&fixture.event("evt_1")).await;
    let changed = fixture.send(fixture.typed("evt_1", "another.type").request_as()).await;
    assert_eq!(changed.rejection(), Some(RejectionKind::BodyChanged));
}

#[tokio::test]
async fn draining_layer_accepts_nothing() {
    let fixture = Fixture::new();
    fixture.layer.drain_handle().drain(Duration::ZERO).await;
    let answer = fixture.deliver("evt_1").await;
    assert_eq!((answer.status, answer.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::Draining)));
    assert_eq!(fixture.inbox.waiting(10).await.expect("a count"), 0);
}
