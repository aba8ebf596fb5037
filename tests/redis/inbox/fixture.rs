//! A receiver that accepts, and a worker for what it accepted.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::routing::post;
use tower::ServiceExt;
use tower_webhook::queue::{EventState, Filter, LeaseRequest, Leased, Order, Page, Queue, QueuedEvent, StoredRequest};
use tower_webhook::store::redis::RedisStoreBuilder;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store, StoreError};
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{EventKey, WebhookEvent, WebhookLayer, Worker};

use crate::redis::fixture::pool;
use crate::redis::receiver::key;
use crate::support::handler::Handler;
use crate::support::servers::redis::RedisServer;
use crate::support::{Answer, NOW, scheme};

pub(super) const LEASE: Duration = Duration::from_secs(30);
pub(super) const RETENTION: Duration = Duration::from_secs(3600);
pub(super) const PREFIX: &str = "inbox.0:";

/// A store with connections of its own, as another process has it.
pub(super) fn store_on(server: &RedisServer) -> RedisStore {
    builder_on(server).build()
}

pub(super) fn builder_on(server: &RedisServer) -> RedisStoreBuilder {
    RedisStore::builder(pool(server)).prefix(PREFIX).timeout(Duration::from_secs(10))
}

pub(crate) struct InboxFixture {
    pub(super) store: RedisStore,
    pub(crate) handler: Handler,
    handlers: Router,
    app: Router,
    sender: TestSender,
}

impl InboxFixture {
    pub(super) fn on(server: &RedisServer) -> Self {
        Self::over(store_on(server))
    }

    pub(crate) fn over(store: RedisStore) -> Self {
        let clock = ManualClock::at_unix(NOW);
        let handler = Handler::new();
        let running = handler.clone();
        let handlers = Router::new()
            .route("/webhooks", post(move |event: WebhookEvent| async move { running.clone().run(event).await }));
        let app = handlers.clone().layer(WebhookLayer::inbox(scheme(), store.clone()).clock(clock.clone()));
        Self { store, handler, handlers, app, sender: TestSender::new(scheme()).clock(clock) }
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        self.deliver_body(body(id)).await
    }

    /// With so many bytes more.
    pub(super) async fn deliver_large(&self, id: &str, length: usize) -> Answer {
        self.deliver_body(body(id).replace('{', &format!(r#"{{"x":"{}","#, "x".repeat(length)))).await
    }

    async fn deliver_body(&self, body: String) -> Answer {
        let delivery = self.sender.deliver(body);
        Answer::read(self.app.clone().oneshot(delivery.request()).await.expect("a router cannot fail")).await
    }

    /// Three attempts without a pause.
    pub(crate) fn worker(&self) -> Worker<Router> {
        let retries = RetryPolicy::new().max_attempts(3).first_pause(Duration::ZERO);
        let worker = Worker::new(self.store.clone(), self.handlers.clone()).retries(retries);
        worker.lease(LEASE).and_then(|worker| worker.poll_every(Duration::from_millis(20))).expect("a configuration")
    }

    pub(super) async fn kept(&self, id: &str) -> QueuedEvent {
        self.store.get(&key(id)).await.expect("an answer").expect("an event")
    }

    pub(super) async fn state(&self, id: &str) -> EventState {
        self.kept(id).await.state
    }
}

pub(super) fn body(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"test.event"}}"#)
}

pub(super) fn stored_request(id: &str) -> StoredRequest {
    StoredRequest::new("a head", body(id), now())
}

pub(super) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

/// Accepts an event without a receiver.
pub(super) async fn accept(store: &RedisStore, key: &EventKey, event_type: &str) -> Result<Claim, StoreError> {
    let claim = ClaimRequest::new(key, ClaimToken::random(), LEASE).event_type(Some(event_type));
    store.enqueue(&claim, &stored_request(key.id())).await
}

pub(super) async fn accept_all(store: &RedisStore, ids: impl IntoIterator<Item = String>) {
    for id in ids {
        let claim = accept(store, &key(&id), "test.event").await;
        assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{id}: {claim:?}");
    }
}

pub(super) async fn lease(store: &RedisStore, limit: usize) -> Vec<Leased> {
    store.lease(&LeaseRequest::new(limit, LEASE)).await.expect("an answer")
}

pub(super) fn ids(leased: &[Leased]) -> Vec<&str> {
    leased.iter().map(|leased| leased.key.id()).collect()
}

/// The ids of all events, in the order of their arrival.
pub(super) async fn listed(store: &RedisStore, filter: &Filter) -> Vec<String> {
    let events = store.list(filter, &Page::first(10_000)).await.expect("an answer");
    events.iter().map(|event| event.key.id().to_owned()).collect()
}

/// Accepts an event that has to wait for those of the same resource before it.
pub(super) async fn accept_ordered(store: &RedisStore, id: &str) {
    let key = key(id);
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
    let claim = store.enqueue(&claim, &stored_request(id).ordered(Order::of("resource"))).await;
    assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
}

/// Leases and completes until there is no more.
pub(super) async fn run_all(store: &RedisStore) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        let leased = lease(store, 10).await;
        if leased.is_empty() {
            return all;
        }
        for leased in leased {
            let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
            assert_eq!(hold.expect("an answer"), Hold::Held);
            all.push(leased.key.id().to_owned());
        }
    }
}
