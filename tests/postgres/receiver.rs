//! A receiver on a Postgres store, and books to check the invariants with.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use axum::routing::post;
use sqlx::{PgPool, Row};
use tokio::task::JoinHandle;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::PostgresStore;
use tower_webhook::testing::{ManualClock, TestSender};
use tower_webhook::{WebhookEvent, WebhookLayer};

use crate::fixture::{Fixture, PATIENCE, eventually, key};
use crate::support::checker::Ledger;
use crate::support::handler::Handler;
use crate::support::servers::postgres::PostgresServer;
use crate::support::{Answer, NOW, scheme};

/// A receiver at `/webhooks` on the default table. Its handler does what the test tells it, and its effects go into the ledger.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) store: PostgresStore,
    pub(crate) layer: WebhookLayer,
    pub(crate) handler: Handler,
    pub(crate) ledger: Ledger,
    app: Router,
    sender: TestSender,
}

impl Receiver {
    pub(crate) async fn on(server: &PostgresServer) -> Self {
        let receiver = Self::over(server.pool());
        receiver.store.migrate().await.expect("a table");
        receiver
    }

    /// With everything as it is by default, except that duplicates are told at once that the first still runs.
    pub(crate) fn over(pool: PgPool) -> Self {
        Self::on_store(PostgresStore::new(pool))
    }

    pub(crate) fn on_store(store: PostgresStore) -> Self {
        let clock = ManualClock::at_unix(NOW);
        let layer = WebhookLayer::new(scheme(), store.clone()).clock(clock.clone()).in_flight_wait(Duration::ZERO);
        let (handler, ledger) = (Handler::new(), Ledger::default());
        let (acting, books) = (handler.clone(), ledger.clone());
        let act = move |event: WebhookEvent| async move {
            let status = acting.run(event.clone()).await;
            if status.is_success() {
                books.effect(&event);
            }
            status
        };
        let app = Router::new().route("/webhooks", post(act)).layer(layer.clone());
        Self { store, layer, handler, ledger, app, sender: TestSender::new(scheme()).clock(clock) }
    }

    pub(crate) async fn deliver(&self, id: &str) -> Answer {
        let delivery = self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
        self.ledger.signed(&key(id));
        let answering = self.app.clone().oneshot(delivery.request::<Body>());
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

    /// To look into its table, and change it.
    pub(crate) fn fixture(&self, server: &PostgresServer) -> Fixture {
        Fixture { pool: server.pool(), table: "webhook_events".to_owned(), store: self.store.clone() }
    }

    /// Never lost, never doubled, never let in.
    pub(crate) async fn check(&self, server: &PostgresServer) {
        let rows = sqlx::query("SELECT key FROM webhook_events").fetch_all(&server.pool()).await;
        let keys: BTreeSet<String> = rows.expect("the table").iter().map(|row| row.get(0)).collect();
        self.ledger.check_keys(&keys, "no seed: nothing is random here");
    }
}

pub(crate) fn assert_unavailable(answer: &Answer) {
    assert_eq!((answer.status, answer.retry_after()), (StatusCode::SERVICE_UNAVAILABLE, Some("5")), "{answer:?}");
    assert_eq!(answer.rejection(), Some(RejectionKind::StoreUnavailable));
}
