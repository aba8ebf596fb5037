//! What the sender sees, and what is kept.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use tower_webhook::queue::{EventState, Filter, Page, Queue};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{Outcome, WebhookLayer};

use crate::desk::Desk;

#[tokio::test]
async fn accepted_delivery_is_answered_before_its_handler_runs() {
    let desk = Desk::new();
    let answer = desk.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Accepted)));
    assert_eq!(desk.handler.runs(), 0);
    desk.is_in("evt_1", EventState::Waiting).await;
    assert_eq!(desk.worker().run_until_idle().await, 1);
    assert_eq!(desk.handler.runs(), 1);
    desk.is_in("evt_1", EventState::Completed).await;
}

#[tokio::test]
async fn duplicate_is_answered_whether_its_event_waits_runs_or_is_done() {
    let desk = Desk::new();
    desk.handler.hold();
    desk.accepts(&desk.event("evt_1")).await;
    let is_duplicate = async || {
        let answer = desk.deliver("evt_1").await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Duplicate)));
    };
    is_duplicate().await;
    let working = tokio::spawn({
        let worker = desk.worker();
        async move { worker.run_until_idle().await }
    });
    desk.handler.started(1).await;
    is_duplicate().await;
    desk.handler.go();
    assert_eq!(working.await.expect("no panic"), 1);
    is_duplicate().await;
    assert_eq!(desk.worker().run_until_idle().await, 0);
    assert_eq!(desk.handler.runs(), 1);
}

#[tokio::test]
async fn other_success_can_be_answered_and_no_failure() {
    let desk = Desk::with_inbox(|inbox| inbox.accepted_status(StatusCode::ACCEPTED).expect("a success"));
    let answer = desk.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::ACCEPTED, Some(Outcome::Accepted)));
    for status in [StatusCode::FOUND, StatusCode::INTERNAL_SERVER_ERROR] {
        assert!(tower_webhook::inbox::Inbox::new(desk.inbox.clone()).accepted_status(status).is_err());
    }
}

#[tokio::test]
async fn what_is_refused_is_not_kept() {
    let desk = Desk::new();
    for request in [
        desk.event("evt_1").tampered().request(),
        desk.event("evt_1").aged(Duration::from_secs(400)).request(),
        desk.event("evt_1").method(Method::PUT).request(),
        desk.sender.deliver("{}").request(),
    ] {
        let answer = desk.send(request).await;
        assert!(matches!(answer.outcome, Some(Outcome::Refused(_))) || answer.status == 405, "{answer:?}");
    }
    let kept = desk.inbox.list(&Filter::all(), &Page::first(10)).await.expect("a list");
    assert_eq!(kept, []);
}

#[tokio::test]
async fn events_without_an_id_are_kept_at_every_delivery() {
    let desk = Desk::configured(|layer| layer.id_source(tower_webhook::identity::IdSource::none()));
    for _ in 0..3 {
        desk.accepts(&desk.event("evt_1")).await;
    }
    assert_eq!(desk.worker().run_until_idle().await, 3);
    assert!(!desk.handler.started(1).await.is_deduplicated());
    let counts = desk.inbox.counts().await.expect("counts");
    assert_eq!((counts.waiting, counts.completed), (0, 3));
}

#[tokio::test]
async fn replay_guard_stands_before_the_inbox() {
    let unsigned = tower_webhook::identity::IdSource::unsigned_header("x-id").expect("a header");
    let hour = Duration::from_secs(3600);
    let desk = Desk::configured(|layer| layer.id_source(unsigned).replay_guard(hour).expect("a window"));
    let delivery = |id| desk.sender.deliver(r#"{"type":"a"}"#).header("x-id", id);
    desk.accepts(&delivery("one")).await;
    let again = desk.send(delivery("one").request()).await;
    assert_eq!(again.outcome, Some(Outcome::Duplicate));
    let replayed = desk.send(delivery("two").request()).await;
    assert_eq!(replayed.rejection(), Some(RejectionKind::Replayed));
    assert_eq!(desk.worker().run_until_idle().await, 1);
}

#[tokio::test]
async fn other_body_under_the_same_id_is_a_duplicate_or_refused() {
    let desk = Desk::configured(WebhookLayer::refuse_changed_bodies);
    desk.accepts(&desk.event("evt_1")).await;
    let changed = desk.send(desk.typed("evt_1", "another.type").request()).await;
    assert_eq!(changed.rejection(), Some(RejectionKind::BodyChanged));
}

#[tokio::test]
async fn draining_layer_accepts_nothing() {
    let desk = Desk::new();
    desk.layer.drain_handle().drain(Duration::ZERO).await;
    let answer = desk.deliver("evt_1").await;
    assert_eq!((answer.status, answer.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::Draining)));
    assert_eq!(desk.inbox.waiting(10).await.expect("a count"), 0);
}
