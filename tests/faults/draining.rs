//! The drain: what is new is refused, what runs is finished, and what is too late is dropped and released.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower::{Layer, ServiceExt};
use tower_webhook::rejection::RejectionKind;
use tower_webhook::{Drained, Outcome};

use crate::support::Answer;
use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::{Fault, Verb};

const GRACE: Duration = Duration::from_secs(20);

fn assert_draining(answer: &Answer) {
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
    assert_eq!(answer.rejection(), Some(RejectionKind::Draining));
}

/// A drain that has begun.
async fn drain(receiver: &ControlledReceiver) -> JoinHandle<Drained> {
    let drain = receiver.layer.drain_handle();
    let task = tokio::spawn(async move { drain.drain(GRACE).await });
    tokio::task::yield_now().await;
    task
}

#[tokio::test(start_paused = true)]
async fn running_deliveries_finish_and_new_ones_are_refused() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let running = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let drained = drain(&receiver).await;
    for id in ["evt_1", "evt_2"] {
        assert_draining(&receiver.deliver(id).await);
    }
    assert_eq!(receiver.store.keys().len(), 1, "the store is not asked for new ones");
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(drained.await.expect("no panic").dropped, 0);
    assert_eq!((receiver.handler.runs(), receiver.store.held()), (1, (0, 1)));
    assert_draining(&receiver.deliver("evt_3").await);
}

#[tokio::test(start_paused = true)]
async fn waiting_duplicates_are_refused_at_once() {
    let receiver = ControlledReceiver::held(|layer| layer.in_flight_wait(10 * GRACE));
    let running = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting: Vec<_> = (0..3).map(|_| receiver.spawn("evt_1")).collect();
    receiver.store.called(Verb::Claim, 5).await;
    let drained = drain(&receiver).await;
    for duplicate in waiting {
        assert_draining(&duplicate.await.expect("no panic"));
    }
    assert!(!drained.is_finished(), "the first one is still running");
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::Completed));
    assert_eq!(drained.await.expect("no panic").dropped, 0);
}

#[tokio::test(start_paused = true)]
async fn past_the_deadline_the_rest_is_dropped_and_released() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let running: Vec<_> = ["evt_1", "evt_2", "evt_3"].map(|id| receiver.spawn(id)).into();
    receiver.handler.started(3).await;
    // One of them is detached: it makes no difference.
    running[0].abort();
    receiver.requests.dropped(1).await;
    assert_eq!(drain(&receiver).await.await.expect("no panic").dropped, 3);
    assert_eq!(
        (receiver.handler.dropped_so_far(), receiver.store.held()),
        (3, (0, 0)),
        "released before the drain returns"
    );
    assert_eq!(receiver.layer.drain_handle().running(), 0);
    for delivery in running.into_iter().skip(1) {
        assert_draining(&delivery.await.expect("no panic"));
    }
    // A restarted process gets the retries.
    let restarted = ControlledReceiver::on(receiver.store.inner.clone(), |layer| layer);
    assert_eq!(restarted.deliver("evt_1").await.outcome, Some(Outcome::Completed));
}

#[tokio::test(start_paused = true)]
async fn detached_deliveries_are_waited_for() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let running = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    running.abort();
    receiver.requests.dropped(1).await;
    let drained = drain(&receiver).await;
    assert!(!drained.is_finished());
    receiver.handler.go();
    assert_eq!(drained.await.expect("no panic").dropped, 0);
    assert_eq!((receiver.handler.dropped_so_far(), receiver.store.held()), (0, (0, 1)));
}

/// What waits for the inner service to become ready has no handler yet that could finish.
#[tokio::test(start_paused = true)]
async fn delivery_that_waits_for_readiness_is_refused_at_the_deadline() {
    let receiver = ControlledReceiver::new();
    let full = tower::limit::ConcurrencyLimitLayer::new(0);
    let inner = tower::service_fn(|_: Request<Full<Bytes>>| async {
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let service = receiver.layer.layer(full.layer(inner));
    let delivery = tokio::spawn(service.oneshot(receiver.event("evt_1").request_as::<Body>()));
    while receiver.layer.drain_handle().running() == 0 {
        tokio::task::yield_now().await;
    }
    // Sooner than the delivery would give up by itself.
    assert_eq!(receiver.layer.drain_handle().drain(Duration::from_secs(1)).await.dropped, 1);
    assert_eq!(receiver.layer.drain_handle().running(), 0, "nothing goes on after the drain");
    let response = delivery.await.expect("no panic").expect("infallible");
    assert_eq!(response.extensions().get(), Some(&Outcome::from(RejectionKind::Draining)));
    assert!(receiver.store.keys().is_empty());
}

/// The store answers the claim when the deadline is long over: the handler must not begin then.
#[tokio::test(start_paused = true)]
async fn claim_answered_after_the_deadline_starts_no_handler() {
    let receiver = ControlledReceiver::configured(|layer| layer.claim_deadline(10 * GRACE).expect("a deadline"));
    receiver.store.breaks(Verb::Claim, Fault::HoldReply);
    let delivery = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, 1).await;
    assert_eq!(drain(&receiver).await.await.expect("no panic").dropped, 1);
    receiver.store.heal(Verb::Claim);
    assert_draining(&delivery.await.expect("no panic"));
    assert_eq!(receiver.handler.runs(), 0, "the process is about to exit");
    while receiver.store.held() != (0, 0) {
        tokio::task::yield_now().await;
    }
}

/// A body that was still arriving when the drain began.
#[tokio::test(start_paused = true)]
async fn delivery_whose_body_arrives_during_the_drain_is_refused() {
    let receiver = ControlledReceiver::new();
    let (send, receive) = oneshot::channel::<Bytes>();
    let request = receiver.event("evt_1").request_as::<Body>();
    let (parts, body) = request.into_parts();
    let bytes = axum::body::to_bytes(body, 1024).await.expect("a body");
    let late = Body::from_stream(futures_util::stream::once(receive));
    let delivery = tokio::spawn({
        let (receiver, request) = (receiver.clone(), Request::from_parts(parts, late));
        async move { receiver.send(request).await }
    });
    receiver.requests.begun(1).await;
    assert_eq!(
        drain(&receiver).await.await.expect("no panic").dropped,
        0,
        "nothing is waited for that is not verified"
    );
    send.send(bytes).expect("it is being read");
    let answer = delivery.await.expect("no panic");
    assert!(matches!(answer.status.as_u16(), 503 | 408), "{:?}", answer.outcome);
    assert!(receiver.store.keys().is_empty());
}

/// A release that hangs does not hang the drain.
#[tokio::test(start_paused = true)]
async fn store_that_hangs_does_not_hang_the_drain() {
    let receiver = ControlledReceiver::held(|layer| layer);
    receiver.store.breaks(Verb::Release, Fault::Hang);
    let running = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    assert_eq!(drain(&receiver).await.await.expect("no panic").dropped, 1);
    assert_draining(&running.await.expect("no panic"));
}

/// Two signals, two drains: both end.
#[tokio::test(start_paused = true)]
async fn drains_can_overlap() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let running = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let patient = drain(&receiver).await;
    let hasty = receiver.layer.drain_handle().drain(Duration::ZERO).await;
    assert_eq!(hasty.dropped, 1);
    assert_draining(&running.await.expect("no panic"));
    assert_eq!(patient.await.expect("no panic").dropped, 0, "the other one dropped it");
    assert_eq!(receiver.layer.drain_handle().drain(GRACE).await.dropped, 0);
}
