//! What the integration tests share: a receiver whose handler counts its runs, and a sender that signs for it.

#![allow(dead_code, unreachable_pub, reason = "every test binary uses a part of it")]

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, Response, StatusCode};
use axum::response::IntoResponse;
use axum::routing::any;
use http_body_util::BodyExt;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::scheme;
use tower_webhook::store::{MemoryStore, Store};
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer};

pub mod audited;
pub mod checker;
pub mod example;
pub mod extremes;
pub mod faulty;
pub mod logs;
#[cfg(feature = "postgres")]
pub mod pgbouncer;
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres_server;
pub mod process;
pub mod proxy;
pub mod redis_scripts;
pub mod redis_server;
pub mod rig;
pub mod socket;
pub mod states;

use self::faulty::Faulty;

/// The receiver's clock starts here.
pub const NOW: u64 = 1_700_000_000;
pub const SECRET: &str = "whsec_test_secret";
pub const HEADER: &str = "webhook-signature";

pub fn scheme() -> scheme::Template {
    scheme::timestamped(SECRET).expect("a valid secret")
}

/// A receiver on the memory store, and everything to look at it from outside.
pub struct Receiver {
    pub app: Router,
    pub store: MemoryStore,
    pub clock: ManualClock,
    pub sender: TestSender,
    pub layer: WebhookLayer,
    runs: Arc<AtomicUsize>,
}

impl Receiver {
    /// Every event is handled with an empty 200.
    pub fn new() -> Self {
        Self::build(|layer| layer, |_| async {})
    }

    /// As [`Receiver::new`], with another configuration.
    pub fn configured(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        Self::build(configure, |_| async {})
    }

    /// As [`Receiver::new`], with another handler.
    pub fn handling<H, F>(handler: H) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        Self::build(|layer| layer, handler)
    }

    /// A receiver at `/webhooks`, for every method, so that it is the layer who refuses.
    pub fn build<H, F>(configure: impl FnOnce(WebhookLayer) -> WebhookLayer, handler: H) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        let store = MemoryStore::new();
        Self::with(store.clone(), store, configure, handler)
    }

    /// As [`Receiver::handling`], on a store with faults.
    pub fn on<H, F>(store: Faulty, handler: H) -> Self
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
    pub fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }

    /// A delivery of `{"id": id}`.
    pub fn event(&self, id: &str) -> TestDelivery {
        self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#))
    }

    pub async fn deliver(&self, delivery: &TestDelivery) -> Answer {
        self.send(delivery.request()).await
    }

    pub async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.app.clone().oneshot(request).await.expect("a router cannot fail")).await
    }

    /// Asserts a refusal with this status that touched neither the store nor the handler.
    pub async fn refuses(&self, request: Request<Body>, status: StatusCode, what: &str) -> RejectionKind {
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

/// A response, read to its end.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub outcome: Option<Outcome>,
}

impl Answer {
    pub async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let outcome = parts.extensions.get().cloned();
        let body = body.collect().await.expect("a body").to_bytes();
        Self { status: parts.status, headers: parts.headers, body, outcome }
    }

    pub fn rejection(&self) -> Option<RejectionKind> {
        self.outcome.as_ref()?.rejection().map(tower_webhook::rejection::Rejection::kind)
    }

    pub fn retry_after(&self) -> Option<&str> {
        self.headers.get("retry-after")?.to_str().ok()
    }
}
