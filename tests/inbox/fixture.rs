//! A receiver with an inbox, whose workers run what the test tells.

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use tower::ServiceExt;
use tower_webhook::inbox::Inbox;
use tower_webhook::queue::{EventState, Queue, QueuedEvent};
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::{ManualClock, TestDelivery, TestSender};
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{EventKey, Outcome, WebhookEvent, WebhookLayer, Worker};

use crate::support::handler::Handler;
use crate::support::{Answer, NOW, scheme};

/// At `/webhooks`.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) app: Router,
    pub(crate) handlers: Router,
    pub(crate) inbox: MemoryStore,
    pub(crate) handler: Handler,
    pub(crate) sender: TestSender,
    pub(crate) layer: WebhookLayer,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::configured(|layer| layer)
    }

    pub(crate) fn configured(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let handler = Handler::new();
        let running = handler.clone();
        let on_event = move |event: WebhookEvent| async move { running.run(event).await };
        let handlers = Router::new().route("/webhooks", post(on_event.clone())).route("/other", post(on_event));
        Self { handler, ..Self::handling(handlers, configure) }
    }

    /// With handlers of its own.
    pub(crate) fn handling(handlers: Router, configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        Self::built(handlers, |inbox| inbox, configure)
    }

    /// With options of the inbox.
    pub(crate) fn with_inbox(configure: impl FnOnce(Inbox) -> Inbox) -> Self {
        let fixture = Self::new();
        let layer = WebhookLayer::inbox(scheme(), configure(Inbox::new(fixture.inbox.clone())));
        let layer = layer.clock(ManualClock::at_unix(NOW));
        Self { app: fixture.handlers.clone().layer(layer.clone()), layer, ..fixture }
    }

    /// With handlers, options of the inbox, and options of the layer.
    pub(crate) fn built(
        handlers: Router,
        configure_inbox: impl FnOnce(Inbox) -> Inbox,
        configure_layer: impl FnOnce(WebhookLayer) -> WebhookLayer,
    ) -> Self {
        let (clock, inbox) = (ManualClock::at_unix(NOW), MemoryStore::new());
        let layer = WebhookLayer::inbox(scheme(), configure_inbox(Inbox::new(inbox.clone())));
        let layer = configure_layer(layer.clock(clock.clone()));
        let app = handlers.clone().layer(layer.clone());
        let sender = TestSender::new(scheme()).clock(clock);
        Self { app, handlers, inbox, handler: Handler::new(), sender, layer }
    }

    pub(crate) fn event(&self, id: &str) -> TestDelivery {
        self.typed(id, "test.event")
    }

    pub(crate) fn typed(&self, id: &str, event_type: &str) -> TestDelivery {
        self.sender.deliver(format!(r#"{{"id":"{id}","type":"{event_type}"}}"#))
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.app.clone().oneshot(request).await.expect("a router cannot fail")).await
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        self.send(self.event(id).request_as()).await
    }

    /// Delivers what must be accepted.
    pub(crate) async fn accepts(&self, delivery: &TestDelivery) {
        let answer = self.send(delivery.request_as()).await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Accepted)));
    }

    /// A worker that retries at once.
    pub(crate) fn worker(&self) -> Worker<Router> {
        let at_once = RetryPolicy::new().first_pause(std::time::Duration::ZERO);
        Worker::new(self.inbox.clone(), self.handlers.clone()).retries(at_once)
    }

    pub(crate) async fn kept(&self, id: &str) -> QueuedEvent {
        let key = EventKey::new("/webhooks", None, id);
        self.inbox.get(&key).await.expect("an answer").expect("the event")
    }

    pub(crate) async fn is_in(&self, id: &str, state: EventState) {
        assert_eq!(self.kept(id).await.state, state, "{id}");
    }
}
