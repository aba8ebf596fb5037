//! A receiver whose handler counts its runs, and a sender that signs for it.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::IntoResponse;
use axum::routing::any;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{MemoryStore, Store};
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};
use tower_webhook::{WebhookEvent, WebhookLayer};

use super::faulty::Faulty;
use super::{Answer, NOW, scheme};

/// A receiver on the memory store, and everything to look at it from outside.
pub(crate) struct Receiver {
    pub(crate) app: Router,
    pub(crate) store: MemoryStore,
    pub(crate) clock: ManualClock,
    pub(crate) sender: TestSender,
    pub(crate) layer: WebhookLayer,
    runs: Arc<AtomicUsize>,
}

impl Receiver {
    /// Every event is handled with an empty 200.
    pub(crate) fn new() -> Self {
        Self::build(|layer| layer, |_| async {})
    }

    /// As [`Receiver::new`], with another configuration.
    pub(crate) fn configured(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        Self::build(configure, |_| async {})
    }

    /// As [`Receiver::new`], with another handler.
    pub(crate) fn handling<H, F>(handler: H) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        Self::build(|layer| layer, handler)
    }

    /// A receiver at `/webhooks`, for every method, so that it is the layer who refuses.
    pub(crate) fn build<H, F>(configure: impl FnOnce(WebhookLayer) -> WebhookLayer, handler: H) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        let store = MemoryStore::new();
        Self::with(store.clone(), store, configure, handler)
    }

    /// As [`Receiver::handling`], on a store with faults.
    pub(crate) fn on<H, F>(store: Faulty, handler: H) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        Self::with(store.inner.clone(), store, |layer| layer, handler)
    }

    fn with<H, F>(
        memory: MemoryStore,
        store: impl Store,
        configure: impl FnOnce(WebhookLayer) -> WebhookLayer,
        handler: H,
    ) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        let clock = ManualClock::at_unix(NOW);
        let layer = configure(WebhookLayer::new(scheme(), store).clock(clock.clone()));
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = runs.clone();
        let counting = move |event: WebhookEvent| {
            counter.fetch_add(1, Ordering::SeqCst);
            handler(event)
        };
        let app = Router::new().route("/webhooks", any(counting)).layer(layer.clone());
        let sender = TestSender::new(scheme()).clock(clock.clone());
        Self { app, store: memory, clock, sender, layer, runs }
    }

    /// How often the handler was called.
    pub(crate) fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// A delivery of `{"id": id}`.
    pub(crate) fn event(&self, id: &str) -> TestDelivery {
        self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#))
    }

    pub(crate) async fn deliver(&self, delivery: &TestDelivery) -> Answer {
        self.send(delivery.request_as()).await
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.app.clone().oneshot(request).await.expect("a router cannot fail")).await
    }

    /// Asserts a refusal with this status that touched neither the store nor the handler.
    pub(crate) async fn refuses(&self, request: Request<Body>, status: StatusCode, what: &str) -> RejectionKind {
        let (runs, stored) = (self.runs(), self.store.len());
        let answer = self.send(request).await;
        assert_eq!(answer.status, status, "{what}: {:?}", answer.outcome);
        assert_eq!((self.runs(), self.store.len()), (runs, stored), "{what} reached the handler or the store");
        if status == StatusCode::UNAUTHORIZED {
            assert_eq!(&answer.body[..], b"", "{what}: the body of a 401 is always the same");
            assert!(answer.headers.keys().all(|name| name == "content-length"), "{what}: {:?}", answer.headers);
        }
        answer.rejection().unwrap_or_else(|| panic!("{what}: no rejection in the response's extensions"))
    }
}
