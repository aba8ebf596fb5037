//! A receiver on any store, and books to check the invariants with.

use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::IntoStore;
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{WebhookEvent, WebhookLayer};

use super::checker::Ledger;
use super::handler::Handler;
use super::wait::{PATIENCE, eventually};
use super::{Answer, NOW, key, scheme};

/// A receiver at `/webhooks`. Its handler does what the test tells it, and its effects go into the ledger.
#[derive(Clone)]
pub(crate) struct Audited<S> {
    pub(crate) app: Router,
    pub(crate) store: S,
    pub(crate) layer: WebhookLayer,
    pub(crate) handler: Handler,
    pub(crate) ledger: Ledger,
    /// The layer's, and the sender's.
    pub(crate) clock: ManualClock,
    sender: TestSender,
}

impl<S: IntoStore + Clone + Send + Sync + 'static> Audited<S> {
    /// With everything as it is by default, except that duplicates are told at once that the first still runs. `ledger` may be
    /// shared with another receiver.
    pub(crate) fn over(store: S, ledger: Ledger) -> Self {
        Self::configured(store, ledger, |layer| layer.in_flight_wait(Duration::ZERO))
    }

    /// With this configuration, and everything else as it is by default.
    pub(crate) fn configured(store: S, ledger: Ledger, configure: impl FnOnce(WebhookLayer) -> WebhookLayer) -> Self {
        let clock = ManualClock::at_unix(NOW);
        let layer = configure(WebhookLayer::new(scheme(), store.clone()).clock(clock.clone()));
        let (handler, books) = (Handler::new(), ledger.clone());
        let acting = handler.clone();
        let act = move |event: WebhookEvent| async move {
            let status = acting.run(event.clone()).await;
            if status.is_success() {
                books.effect(&event);
            }
            status
        };
        let app = Router::new().route("/webhooks", post(act)).layer(layer.clone());
        let sender = TestSender::new(scheme()).clock(clock.clone());
        Self { app, store, layer, handler, ledger, clock, sender }
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        let delivery = self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
        self.ledger.signed(&key(id));
        let answering = self.app.clone().oneshot(delivery.request());
        let response = tokio::time::timeout(PATIENCE, answering).await.expect("an answer");
        let answer = Answer::read(response.expect("a router cannot fail")).await;
        self.ledger.answered(id, answer.status);
        answer
    }

    pub(crate) fn spawn(&self, id: &str) -> JoinHandle<Answer> {
        let (receiver, id) = (self.clone(), id.to_owned());
        tokio::spawn(async move { receiver.deliver(&id).await })
    }

    /// Delivers until it is acknowledged, as a sender does.
    pub(crate) async fn deliver_until_acknowledged(&self, id: &str) -> Answer {
        let begun = Instant::now();
        loop {
            let answer = self.deliver(id).await;
            if answer.status.is_success() {
                return answer;
            }
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
            assert!(begun.elapsed() < PATIENCE, "never acknowledged: {answer:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits for what goes on in the background: completions that are repeated, doubtful claims that are released.
    pub(crate) async fn settled(&self) {
        eventually("nothing goes on", async || self.layer.drain_handle().running() == 0).await;
    }
}

pub(crate) fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")), "{answer:?}");
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
}
