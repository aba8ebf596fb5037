//! `WebhookLayer::on_permanent`: told of events that the store remembers as failed, once each.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_webhook::store::MemoryStore;
use tower_webhook::testing::TestSender;
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer};

use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::wait::eventually;
use crate::support::{Answer, scheme};

/// Key, type, attempt and reason of each call.
type Told = Arc<Mutex<Vec<(String, Option<String>, Option<u32>, String)>>>;

/// A receiver whose handler fails as the event's id says, after `go` where it says `waits`.
struct Receiver {
    app: Router,
    store: Faulty,
    told: Told,
    go: Arc<Notify>,
}

impl Receiver {
    fn new() -> Self {
        let told: Told = Arc::default();
        let noted = told.clone();
        let receiver = Self::configured(|layer| {
            layer.on_permanent(move |failure| {
                noted.lock().expect("no panic").push((
                    failure.key.id().to_owned(),
                    failure.event_type.map(str::to_owned),
                    failure.attempt,
                    failure.reason.to_owned(),
                ));
            })
        });
        Self { told, ..receiver }
    }

    fn configured(configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let (store, go) = (Faulty::new(MemoryStore::new()), Arc::new(Notify::new()));
        let waiting = go.clone();
        let handler = async move |event: WebhookEvent| {
            if event.id().starts_with("waits") {
                waiting.notified().await;
            }
            match event.id() {
                "fine" => Ok(()),
                "transient" => Err(HandlerError::transient("later")),
                "panics" => panic!("asked to"),
                _ => Err(HandlerError::permanent("no such account")),
            }
        };
        let layer = configure(WebhookLayer::new(scheme(), store.clone()).in_flight_wait(Duration::ZERO));
        let app = Router::new().route("/webhooks", post(handler)).layer(layer);
        Self { app, store, told: Told::default(), go }
    }

    async fn deliver(&self, id: &str) -> Answer {
        let event = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
        Answer::read(self.app.clone().oneshot(event.request()).await.expect("an answer")).await
    }

    fn told(&self) -> usize {
        self.told.lock().expect("no panic").len()
    }
}

#[tokio::test]
async fn permanent_failure_is_told_once_with_its_facts() {
    let receiver = Receiver::new();
    for id in ["fine", "transient", "panics", "bad"] {
        receiver.deliver(id).await;
    }
    assert_eq!(receiver.deliver("bad").await.outcome, Some(Outcome::Duplicate));
    let facts = ("bad".to_owned(), Some("test.event".to_owned()), Some(1), "no such account".to_owned());
    assert_eq!(*receiver.told.lock().expect("no panic"), [facts]);
}

/// The sender's answer does not wait for a store that is away, and neither is the operator told too early.
#[tokio::test(start_paused = true)]
async fn failure_is_told_once_the_store_has_confirmed_it() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::HoldReply] {
        let receiver = Receiver::new();
        receiver.store.breaks(Verb::Complete, fault);
        let answer = receiver.deliver("bad").await;
        assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::CompletionPending)), "{fault:?}");
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(receiver.told(), 0, "{fault:?}: the store has not confirmed it");
        receiver.store.heal(Verb::Complete);
        eventually("the hook", async || receiver.told() > 0).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(receiver.told(), 1, "{fault:?}");
    }
}

#[tokio::test]
async fn failure_is_told_though_the_sender_has_gone() {
    let receiver = Receiver::new();
    let hung_up = tokio::time::timeout(Duration::from_millis(1), receiver.deliver("waits")).await;
    assert!(hung_up.is_err(), "the handler waits");
    receiver.go.notify_one();
    eventually("the hook", async || receiver.told() == 1).await;
}

#[tokio::test]
async fn hook_that_panics_changes_nothing() {
    let told = Arc::new(Mutex::new(0));
    let counted = told.clone();
    let receiver = Receiver::configured(|layer| {
        layer.on_permanent(move |_| {
            *counted.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            panic!("asked to");
        })
    });
    let answer = receiver.deliver("bad").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Failed)));
    assert_eq!(receiver.deliver("bad").await.outcome, Some(Outcome::Duplicate));
    assert_eq!(*told.lock().expect("no panic"), 1);
}

/// The worker has a hook of its own, and runs the event.
#[tokio::test]
async fn inbox_leaves_failures_to_the_worker() {
    let told = Arc::new(Mutex::new(0));
    let counted = told.clone();
    let inbox = MemoryStore::new();
    let layer = WebhookLayer::inbox(scheme(), inbox.clone()).on_permanent(move |_| *counted.lock().expect("none") += 1);
    let handler = async |_: WebhookEvent| Err::<(), _>(HandlerError::permanent("bad"));
    let handlers: Router = Router::new().route("/webhooks", post(handler));
    let event = TestSender::new(scheme()).deliver(r#"{"id":"evt_1"}"#);
    handlers.clone().layer(layer).oneshot(event.request()).await.expect("an answer");
    assert_eq!(tower_webhook::Worker::new(inbox, handlers).run_until_idle().await, 1);
    assert_eq!(*told.lock().expect("no panic"), 0);
}
