//! A receiver whose handler is a closure, on any store.

use std::future::Future;

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_webhook::store::IntoStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{WebhookEvent, WebhookLayer};

pub(crate) use crate::support::key;
use crate::support::{Answer, scheme};

#[derive(Clone)]
pub(crate) struct Receiver {
    app: Router,
    sender: TestSender,
}

impl Receiver {
    pub(crate) fn new<H, F>(store: impl IntoStore, handler: H) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        Self::configured(store, |layer| layer, handler)
    }

    pub(crate) fn configured<H, F>(
        store: impl IntoStore,
        configure: impl FnOnce(WebhookLayer) -> WebhookLayer,
        handler: H,
    ) -> Self
    where
        H: Fn(WebhookEvent) -> F + Clone + Send + Sync + 'static,
        F: Future<Output: IntoResponse> + Send + 'static,
    {
        let layer = configure(WebhookLayer::new(scheme(), store));
        let app = Router::new().route("/webhooks", post(handler)).layer(layer);
        Self { app, sender: TestSender::new(scheme()) }
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        let delivery = self.sender.deliver(format!(r#"{{"id":"{id}","type":"payment"}}"#));
        Answer::read(self.app.clone().oneshot(delivery.request()).await.expect("a router cannot fail")).await
    }

    /// From a task of its own. Aborting it is what a server does when the client hangs up.
    pub(crate) fn spawn(&self, id: &'static str) -> JoinHandle<Answer> {
        let receiver = self.clone();
        tokio::spawn(async move { receiver.deliver(id).await })
    }
}
