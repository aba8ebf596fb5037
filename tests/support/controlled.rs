//! A receiver on a store that can be broken, whose handler does what the test tells it.

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::middleware;
use axum::routing::post;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_webhook::store::{MemoryStore, Store};
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};
use tower_webhook::{EventKey, WebhookEvent, WebhookLayer};

use super::faulty::{Faulty, soon};
use super::handler::{Handler, Requests};
use super::{Answer, NOW, scheme};

/// A receiver at `/webhooks`.
#[derive(Clone)]
pub(crate) struct ControlledReceiver {
    pub(crate) app: Router,
    pub(crate) store: Faulty,
    pub(crate) layer: WebhookLayer,
    pub(crate) clock: ManualClock,
    pub(crate) sender: TestSender,
    pub(crate) handler: Handler,
    pub(crate) requests: Requests,
}

impl ControlledReceiver {
    /// The handler answers 200 at once.
    pub(crate) fn new() -> Self {
        Self::configured(|layer| layer)
    }

    /// As [`ControlledReceiver::new`], with another configuration.
    pub(crate) fn configured(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        Self::on(MemoryStore::new(), configure)
    }

    /// The handler waits in the middle of each run until it is told to go on.
    pub(crate) fn held(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let receiver = Self::configured(configure);
        receiver.handler.hold();
        receiver
    }

    pub(crate) fn on(memory: MemoryStore, configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        Self::on_faulty(Faulty::new(memory), configure)
    }

    pub(crate) fn on_faulty(store: Faulty, configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        Self::behind(store.clone(), store, configure)
    }

    /// A receiver on `front`, which stands in front of `store`.
    pub(crate) fn behind(
        front: impl Store,
        store: Faulty,
        configure: impl FnOnce(WebhookLayer) -> WebhookLayer,
    ) -> Self {
        let clock = ManualClock::at_unix(NOW);
        let layer = configure(WebhookLayer::new(scheme(), front).clock(clock.clone()));
        let (handler, requests) = (Handler::new(), Requests::new());
        let (running, watching) = (handler.clone(), requests.clone());
        let app = Router::new()
            .route("/webhooks", post(move |event: WebhookEvent| async move { running.run(event).await }))
            .layer(layer.clone())
            .layer(middleware::from_fn(move |request, next| watching.clone().watch(request, next)));
        let sender = TestSender::new(scheme()).clock(clock.clone());
        Self { app, store, layer, clock, sender, handler, requests }
    }

    pub(crate) fn event(&self, id: &str) -> TestDelivery {
        self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#))
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(soon(self.app.clone().oneshot(request)).await.expect("a router cannot fail")).await
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        self.send(self.event(id).request_as()).await
    }

    /// A delivery from a task of its own. Aborting that task is what a server does when the client hangs up.
    pub(crate) fn spawn(&self, id: &str) -> JoinHandle<Answer> {
        let (receiver, request) = (self.clone(), self.event(id).request_as());
        tokio::spawn(async move { receiver.send(request).await })
    }

    pub(crate) fn key(id: &str) -> EventKey {
        EventKey::new("/webhooks", None, id)
    }
}
