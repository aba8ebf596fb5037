//! Rows 4 to 6: handlers that fail, and row 19: configurations that cannot work.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::post;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{ConfigError, ConfigErrorKind, Outcome, WebhookEvent, WebhookLayer};

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};
use crate::support::{Answer, Receiver, scheme};

#[tokio::test]
async fn rows_4_and_5_failure_goes_out_as_it_is_and_the_retry_runs() {
    for status in [500, 502, 503, 400, 404, 409, 410, 429, 301, 304] {
        let receiver = ControlledReceiver::new();
        receiver.handler.answers(status);
        let answer = receiver.deliver("evt_1").await;
        assert_eq!((answer.status.as_u16(), answer.outcome), (status, Some(Outcome::Released)));
        assert_eq!(receiver.store.held(), (0, 0), "{status}: released");
        receiver.handler.answers(200);
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
        assert_eq!(receiver.handler.started(2).await.attempt(), Some(2));
    }
}

#[tokio::test]
async fn row_5_policy_can_complete_what_is_refused() {
    let receiver = ControlledReceiver::configured(|layer| layer.complete_when(|status| !status.is_server_error()));
    receiver.handler.answers(404);
    assert_eq!(receiver.deliver("evt_1").await.status, StatusCode::NOT_FOUND);
    assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
}

/// A failed release is no reason to hold the failure's answer back; the lease ends by itself.
#[tokio::test(start_paused = true)]
async fn row_4_release_that_fails_leaves_the_claim_to_its_lease() {
    for fault in [Fault::Fail, Fault::Hang] {
        let receiver = ControlledReceiver::configured(|layer| layer.in_flight_wait(Duration::ZERO));
        receiver.store.breaks(Verb::Release, fault);
        receiver.handler.answers(500);
        assert_eq!(receiver.deliver("evt_1").await.status, StatusCode::INTERNAL_SERVER_ERROR);
        receiver.handler.answers(200);
        assert_eq!(receiver.deliver("evt_1").await.rejection(), Some(RejectionKind::InFlight));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(receiver.deliver("evt_1").await.outcome, Some(Outcome::Completed));
    }
}

async fn yields_then_panics(_: WebhookEvent) {
    tokio::task::yield_now().await;
    panic!("after an await, on purpose");
}

#[tokio::test]
async fn row_6_panic_is_a_500_and_releases() {
    let before = Receiver::handling(|event| {
        assert!(event.attempt() == Some(2), "before any await, on purpose");
        async {}
    });
    let first_poll = Receiver::handling(|event| async move {
        assert!(event.attempt() == Some(2), "in the first poll, on purpose");
    });
    let after = Receiver::handling(|event| async move {
        if event.attempt() == Some(1) {
            yields_then_panics(event).await;
        }
    });
    for receiver in [before, first_poll, after] {
        let event = receiver.event("evt_1");
        let answer = receiver.deliver(&event).await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::INTERNAL_SERVER_ERROR, Some(Outcome::Panicked)));
        assert!(answer.body.is_empty(), "nothing of the panic is told");
        assert!(receiver.store.is_empty(), "released");
        assert_eq!(receiver.layer.drain_handle().running(), 0, "its place is free again");
        assert_eq!(receiver.deliver(&event).await.outcome, Some(Outcome::Completed), "the retry runs");
        assert_eq!(receiver.runs(), 2);
    }
}

/// Row 6 where nobody waits for the answer any more.
#[tokio::test]
async fn row_6_panic_of_a_detached_handler_releases() {
    let panics = std::sync::Arc::new(tokio::sync::Notify::new());
    let (go, started) = (panics.clone(), std::sync::Arc::new(tokio::sync::Notify::new()));
    let begun = started.clone();
    let receiver = Receiver::handling(move |event| {
        let (go, begun) = (go.clone(), begun.clone());
        async move {
            if event.attempt() == Some(1) {
                begun.notify_one();
                go.notified().await;
                panic!("detached, on purpose");
            }
        }
    });
    let event = receiver.event("evt_1");
    let delivery = tokio::spawn(receiver.app.clone().oneshot(event.request()));
    started.notified().await;
    delivery.abort();
    assert!(delivery.await.expect_err("aborted").is_cancelled());
    panics.notify_one();
    while receiver.layer.drain_handle().running() > 0 {
        tokio::task::yield_now().await;
    }
    assert!(receiver.store.is_empty(), "released");
    assert_eq!(receiver.deliver(&event).await.outcome, Some(Outcome::Completed));
}

/// The error of a fallible inner service passes through, and releases.
#[tokio::test]
async fn inner_error_releases_like_a_failure() {
    let store = MemoryStore::new();
    let inner = tower::service_fn(|_: http::Request<http_body_util::Full<axum::body::Bytes>>| async {
        Err::<http::Response<Body>, _>("broken")
    });
    let service = tower::Layer::layer(&WebhookLayer::new(scheme(), store.clone()), inner);
    let request = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#).request();
    assert_eq!(service.oneshot(request).await.err(), Some("broken"));
    assert!(store.is_empty());
}

/// A body that the handler's response never finishes is none of the claim's business: the head completes it.
#[tokio::test]
async fn response_head_completes_the_event() {
    let layer = WebhookLayer::new(scheme(), MemoryStore::new());
    let app: Router = Router::new()
        .route("/webhooks", post(|| async { Body::from_stream(futures_util::stream::pending::<Result<&str, &str>>()) }))
        .layer(layer);
    let event = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#);
    let first = app.clone().oneshot(event.request()).await.expect("an answer");
    assert_eq!(first.extensions().get(), Some(&Outcome::Completed));
    drop(first);
    let second = Answer::read(app.oneshot(event.request()).await.expect("an answer")).await;
    assert_eq!(second.outcome, Some(Outcome::Duplicate));
}

#[test]
fn row_19_configurations_that_cannot_work_do_not_build() {
    type Build = fn(WebhookLayer, Duration) -> Result<WebhookLayer, ConfigError>;
    let durations: [(&str, Build); 4] = [
        ("lease", WebhookLayer::lease),
        ("retention", WebhookLayer::retention),
        ("body_deadline", WebhookLayer::body_deadline),
        ("claim_deadline", WebhookLayer::claim_deadline),
    ];
    let layer = || WebhookLayer::new(scheme(), MemoryStore::new());
    for (name, build) in durations {
        for time in [Duration::ZERO, Duration::MAX, Duration::from_secs(u64::MAX / 2)] {
            let error = build(layer(), time).expect_err("a duration that cannot work");
            assert_eq!(error.kind(), ConfigErrorKind::Duration, "{name} {time:?}");
        }
        for time in [Duration::from_secs(3600), Duration::from_secs(365 * 24 * 3600)] {
            assert!(build(layer(), time).is_ok(), "{name} {time:?}");
        }
        // As long as one signature is accepted its event must be remembered; everything else may be short.
        assert_eq!(build(layer(), Duration::from_millis(1)).is_ok(), name != "retention", "{name}");
    }
    assert_eq!(layer().max_running(0).expect_err("zero").kind(), ConfigErrorKind::Limit);
    assert_eq!(layer().body_limit(0).expect_err("zero").kind(), ConfigErrorKind::Limit);
    assert_eq!(layer().methods([]).expect_err("none").kind(), ConfigErrorKind::Limit);
    assert_eq!(layer().endpoint("").expect_err("empty").kind(), ConfigErrorKind::Name);
    assert_eq!(layer().endpoint("e".repeat(256)).expect_err("too long").kind(), ConfigErrorKind::Name);
    assert!(layer().max_running(1).and_then(|layer| layer.body_limit(1)).and_then(|layer| layer.endpoint("e")).is_ok());
}

/// What cannot be refused must not overflow either.
#[tokio::test(start_paused = true)]
async fn row_19_longest_durations_do_not_overflow() {
    let decade = Duration::from_secs(10 * 365 * 24 * 3600);
    let receiver = ControlledReceiver::held(|layer| {
        let layer = layer.lease(decade).and_then(|layer| layer.retention(decade)).expect("ten years");
        let layer = layer.claim_deadline(decade).and_then(|layer| layer.body_deadline(decade)).expect("ten years");
        layer.in_flight_wait(Duration::MAX).retry_after(Duration::MAX)
    });
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, 3).await;
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate));
    assert_eq!(receiver.layer.drain_handle().drain(Duration::MAX).await.dropped, 0);
    assert_eq!(receiver.deliver("evt_2").await.rejection(), Some(RejectionKind::Draining));
}
