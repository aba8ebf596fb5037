//! A rolling deploy: some instances run events inline, some have an inbox, and all share one store.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{Outcome, WebhookLayer};

use crate::inbox::fixture::Fixture;
use crate::support::handler::Handler;
use crate::support::{NOW, scheme};

/// An instance that runs events inline, on the same store.
fn inline(fixture: &Fixture) -> (Fixture, Handler) {
    let handler = Handler::new();
    let running = handler.clone();
    let on_event = move |event: tower_webhook::WebhookEvent| async move { running.run(event).await };
    let clock = tower_webhook::testing::ManualClock::at_unix(NOW);
    let layer = WebhookLayer::new(scheme(), fixture.inbox.clone()).clock(clock);
    let app = axum::Router::new().route("/webhooks", axum::routing::post(on_event)).layer(layer);
    (Fixture { app, handler: handler.clone(), ..fixture.clone() }, handler)
}

#[tokio::test]
async fn queued_event_is_a_duplicate_to_an_inline_receiver() {
    let fixture = Fixture::new();
    let (inline, handler) = inline(&fixture);
    fixture.accepts(&fixture.event("evt_1")).await;
    let answer = inline.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Duplicate)));
    assert_eq!(handler.runs(), 0);
}

#[tokio::test(start_paused = true)]
async fn event_that_runs_inline_is_never_acknowledged_by_the_inbox() {
    let fixture = Fixture::configured(|layer| layer.in_flight_wait(Duration::from_secs(3)));
    let (inline, handler) = inline(&fixture);
    handler.hold();
    let first = tokio::spawn({
        let inline = inline.clone();
        async move { inline.deliver("evt_1").await }
    });
    handler.started(1).await;
    let answer = fixture.deliver("evt_1").await;
    assert_eq!((answer.status, answer.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::InFlight)));
    handler.go();
    assert_eq!(first.await.expect("no panic").status, StatusCode::OK);
    let answer = fixture.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Duplicate)));
    assert_eq!(fixture.worker().run_until_idle().await, 0);
}

#[tokio::test(start_paused = true)]
async fn delivery_that_waits_for_an_inline_run_that_fails_is_accepted() {
    let fixture = Fixture::new();
    let (inline, handler) = inline(&fixture);
    handler.hold();
    handler.answers(500);
    let first = tokio::spawn({
        let inline = inline.clone();
        async move { inline.deliver("evt_1").await }
    });
    handler.started(1).await;
    let waiting = tokio::spawn({
        let fixture = fixture.clone();
        async move { fixture.deliver("evt_1").await }
    });
    tokio::time::sleep(Duration::from_millis(500)).await;
    handler.go();
    assert_eq!(first.await.expect("no panic").status, StatusCode::INTERNAL_SERVER_ERROR);
    let answer = waiting.await.expect("no panic");
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Accepted)));
    assert_eq!(fixture.worker().run_until_idle().await, 1);
}
