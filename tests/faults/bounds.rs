//! How much may run at once, and what must not be held meanwhile.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use futures_util::FutureExt;
use http_body_util::Full;
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceBuilder, ServiceExt};
use tower_webhook::rejection::{Rejection, RejectionKind};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, MemoryStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::{EventKey, Outcome, WebhookEvent, WebhookLayer};

use crate::support::controlled::ControlledReceiver;
use crate::support::faulty::Verb;
use crate::support::handler::Handler;
use crate::support::{Answer, scheme};

/// The receiver's layer around its handler with a limit of its own, as `ServiceBuilder` puts it there.
fn limited(
    receiver: &ControlledReceiver,
    limit: usize,
) -> impl Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send> + Clone + Send + 'static {
    let handler: Handler = receiver.handler.clone();
    let inner = tower::service_fn(move |request: Request<Full<Bytes>>| {
        let (handler, event) = (handler.clone(), request.extensions().get::<WebhookEvent>().cloned());
        async move {
            let status = handler.run(event.expect("the layer's event")).await;
            Ok::<_, Infallible>(Response::builder().status(status).body(Full::<Bytes>::default()).expect("a response"))
        }
    });
    ServiceBuilder::new()
        .map_response(|response: Response<_>| response.map(Body::new))
        .layer(receiver.layer.clone().endpoint("limited").expect("a name"))
        .concurrency_limit(limit)
        .service(inner)
}

async fn send(
    service: impl Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    request: Request<Body>,
) -> Answer {
    Answer::read(service.oneshot(request).await.expect("infallible")).await
}

#[tokio::test(start_paused = true)]
async fn max_running_counts_what_runs_detached() {
    let receiver = ControlledReceiver::held(|layer| layer.max_running(1).expect("a limit"));
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    first.abort();
    receiver.requests.dropped(1).await;
    let busy = receiver.deliver("evt_2").await;
    assert_eq!((busy.status, busy.rejection()), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::Busy)));
    assert_eq!((busy.retry_after(), receiver.handler.runs()), (Some("5"), 1));
    assert_eq!(receiver.store.keys().len(), 1, "what is refused is not claimed");
    receiver.handler.go();
    receiver.handler.finished(1).await;
    receiver.store.called(Verb::Complete, 1).await;
    receiver.handler.hold_no_more();
    tokio::task::yield_now().await;
    assert_eq!(receiver.deliver("evt_2").await.outcome, Some(Outcome::Completed), "its place is free");
}

/// A duplicate that waits occupies no place that another event could run in.
#[tokio::test(start_paused = true)]
async fn waiting_duplicates_leave_their_place_to_others() {
    let receiver = ControlledReceiver::held(|layer| layer.max_running(2).expect("a limit"));
    let first = receiver.spawn("evt_1");
    receiver.handler.started(1).await;
    let waiting = receiver.spawn("evt_1");
    receiver.store.called(Verb::Claim, 3).await;
    assert_eq!(receiver.layer.drain_handle().running(), 1);
    let other = receiver.spawn("evt_2");
    receiver.handler.started(2).await;
    receiver.handler.go();
    receiver.handler.go();
    for delivery in [first, other] {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(Outcome::Completed));
    }
    assert_eq!(waiting.await.expect("no panic").outcome, Some(Outcome::Duplicate));
}

/// A body that never ends, correctly announced or forged, holds no permit of the inner service.
#[tokio::test(start_paused = true)]
async fn readiness_is_not_held_while_a_body_is_read() {
    let receiver = ControlledReceiver::new();
    let service = limited(&receiver, 1);
    let (bytes, body) = mpsc::channel::<Result<Bytes, Infallible>>(1);
    let body = futures_util::stream::unfold(body, |mut body| async move { Some((body.recv().await?, body)) });
    let trickling = receiver.event("evt_1").request().map(|_| Body::from_stream(body));
    let trickling = tokio::spawn(send(service.clone(), trickling));
    bytes.send(Ok(Bytes::from_static(b"{"))).await.expect("it is being read");
    // The channel has room again once the first frame was taken.
    bytes.reserve().await.expect("it is being read").send(Ok(Bytes::from_static(b" ")));
    assert_eq!(send(service.clone(), receiver.event("evt_2").request_as()).await.outcome, Some(Outcome::Completed));
    let slow = trickling.await.expect("no panic");
    assert_eq!(slow.status, StatusCode::REQUEST_TIMEOUT, "its own deadline ends it");
}

#[tokio::test(start_paused = true)]
async fn readiness_is_not_held_while_a_duplicate_waits() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let service = limited(&receiver, 2);
    let first = tokio::spawn(send(service.clone(), receiver.event("evt_1").request_as()));
    receiver.handler.started(1).await;
    let waiting = tokio::spawn(send(service.clone(), receiver.event("evt_1").request_as()));
    receiver.store.called(Verb::Claim, 3).await;
    let other = tokio::spawn(send(service.clone(), receiver.event("evt_2").request_as()));
    receiver.handler.started(2).await;
    receiver.handler.go();
    receiver.handler.go();
    for (delivery, outcome) in [(first, Outcome::Completed), (waiting, Outcome::Duplicate), (other, Outcome::Completed)]
    {
        assert_eq!(delivery.await.expect("no panic").outcome, Some(outcome));
    }
}

/// With every permit taken by the first delivery, its duplicate still gets its 503 when the wait is over.
#[tokio::test(start_paused = true)]
async fn saturated_inner_service_does_not_hide_what_the_store_knows() {
    let receiver = ControlledReceiver::held(|layer| layer);
    let service = limited(&receiver, 1);
    let first = tokio::spawn(send(service.clone(), receiver.event("evt_1").request_as()));
    receiver.handler.started(1).await;
    let patience = Duration::from_secs(60);
    let duplicate = tokio::time::timeout(patience, send(service.clone(), receiver.event("evt_1").request_as())).await;
    receiver.handler.go();
    assert_eq!(first.await.expect("no panic").outcome, Some(Outcome::Completed));
    let duplicate = duplicate.expect("an answer long before the sender gives up");
    assert_eq!((duplicate.status, duplicate.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")));
}

/// Says that it is never ready, or that it is broken.
#[derive(Clone)]
struct Unready {
    broken: bool,
    polls: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

impl Service<Request<Full<Bytes>>> for Unready {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.polls.fetch_add(1, Ordering::SeqCst);
        if self.broken { Poll::Ready(Err("broken")) } else { Poll::Pending }
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        unreachable!("called though it was never ready")
    }
}

fn unready(broken: bool) -> Unready {
    Unready { broken, polls: std::sync::Arc::default() }
}

#[tokio::test]
async fn layer_is_always_ready_and_asks_the_inner_service_last() {
    let receiver = ControlledReceiver::new();
    let inner = unready(false);
    let mut service = receiver.layer.layer(inner.clone());
    let ready = std::future::poll_fn(|cx| Service::<Request<Body>>::poll_ready(&mut service, cx));
    assert_eq!(ready.now_or_never(), Some(Ok(())));
    let forged = receiver.event("evt_1").tampered().request();
    assert_eq!(service.call(forged).await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
    assert_eq!(inner.polls.load(Ordering::SeqCst), 0, "what is not verified does not even ask");
}

#[tokio::test]
async fn client_that_leaves_a_never_ready_service_leaves_nothing_behind() {
    for detach in [true, false] {
        let receiver =
            ControlledReceiver::configured(|layer| if detach { layer } else { layer.cancel_on_disconnect() });
        let mut service = receiver.layer.layer(unready(false));
        let mut delivery = Box::pin(service.call(receiver.event("evt_1").request()));
        assert!(std::future::poll_fn(|cx| Poll::Ready(delivery.as_mut().poll(cx).is_pending())).await);
        assert_eq!(receiver.layer.drain_handle().running(), 1);
        drop(delivery);
        tokio::task::yield_now().await;
        assert_eq!(receiver.layer.drain_handle().running(), 0);
        assert!(receiver.store.keys().is_empty(), "the store was not asked");
    }
}

#[tokio::test]
async fn inner_service_that_breaks_before_it_is_ready_claims_nothing() {
    let receiver = ControlledReceiver::new();
    let mut service = receiver.layer.layer(unready(true));
    assert_eq!(service.call(receiver.event("evt_1").request()).await.err(), Some("broken"));
    assert!(receiver.store.keys().is_empty());
    assert_eq!(receiver.layer.drain_handle().running(), 0);
}

/// Refusals and failures of every kind give their places back.
#[tokio::test(start_paused = true)]
async fn every_end_gives_its_place_back() {
    let receiver = ControlledReceiver::configured(|layer: WebhookLayer| layer.max_running(1).expect("a limit"));
    for (n, status) in [200, 500, 404, 200].into_iter().enumerate() {
        receiver.handler.answers(status);
        assert_eq!(receiver.deliver(&format!("evt_{n}")).await.status.as_u16(), status);
        assert_eq!(receiver.layer.drain_handle().running(), 0, "{status}");
    }
    receiver.deliver("evt_0").await;
    receiver.send(receiver.event("evt_9").tampered().request_as()).await;
    assert_eq!(receiver.layer.drain_handle().running(), 0);
}

/// A duplicate that took over while it waited has a claim, but no place yet: it does not hold the claim for longer than
/// any delivery would wait for one.
#[tokio::test(start_paused = true)]
async fn takeover_without_a_place_gives_the_claim_back() {
    let store = MemoryStore::new();
    let layer = WebhookLayer::new(scheme(), store.clone());
    let limited =
        tower::limit::ConcurrencyLimitLayer::new(1).layer(tower::service_fn(|_: Request<Full<Bytes>>| async {
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }));
    let service = layer.layer(limited.clone());
    let event = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#);

    // Somebody else holds the claim for three seconds, and then somebody the only place for ever.
    let key = EventKey::new("timestamped", None, "evt_1");
    let lease = Duration::from_secs(3);
    let other = ClaimRequest::new(&key, ClaimToken::random(), lease);
    assert!(matches!(store.claim(&other).await, Ok(Claim::Fresh { .. })));
    let waiting = tokio::spawn(service.oneshot(event.request()));
    tokio::time::sleep(lease / 2).await;
    let mut place = limited.clone();
    std::future::poll_fn(|cx| place.poll_ready(cx)).await.expect("infallible");

    let response = waiting.await.expect("no panic").expect("infallible");
    let rejection = response.extensions().get::<Outcome>().and_then(Outcome::rejection).map(Rejection::kind);
    assert_eq!((response.status(), rejection), (StatusCode::SERVICE_UNAVAILABLE, Some(RejectionKind::Busy)));
    assert_eq!((store.len(), layer.drain_handle().running()), (0, 0), "claim and admission are given back");
}
