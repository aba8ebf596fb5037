//! A layer in front of an inbox and workers behind it, here and in other processes.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use sqlx::sqlite::SqlitePool;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_webhook::queue::{EventState, Queue, QueuedEvent};
use tower_webhook::store::{Hold, SqliteStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, Worker};

use crate::sqlite::fixture::{Fixture, LEASE, PATIENCE, done, eventually, key, pool_at};
use crate::sqlite::queue::{accept, lease};
use crate::support::{Answer, scheme};

/// Short, so that the event of a worker that was killed is soon run by another; long enough to be renewed on a busy machine.
const BRIEF: Duration = Duration::from_millis(1500);

/// What other processes do.
pub(crate) async fn play(role: &str, file: &Path, store: &SqliteStore) {
    match role {
        "accept" => accept_for_ever(store).await,
        "drain" => drain(store).await,
        "hang" => {
            let hang = |event: WebhookEvent| async move {
                println!("\nstarted {}", event.id());
                std::future::pending::<()>().await;
            };
            work(store, Router::new().route("/webhooks", post(hang))).await;
        }
        "pay" => work(store, payments(pool_at(file).await)).await,
        role => panic!("{role}"),
    }
}

async fn work(store: &SqliteStore, handlers: Router) {
    let worker = Worker::new(store.clone(), handlers).retries(tireless()).lease(BRIEF).expect("a lease");
    worker.poll_every(Duration::from_millis(50)).expect("an interval").run(std::future::pending()).await;
}

/// However often a worker is killed.
pub(crate) const fn tireless() -> RetryPolicy {
    RetryPolicy::new().max_attempts(100).first_pause(Duration::from_millis(1)).longest_pause(Duration::from_millis(50))
}

async fn accept_for_ever(store: &SqliteStore) {
    let mut accepting = JoinSet::new();
    for sender in 0..16 {
        let store = store.clone();
        accepting.spawn(async move {
            for n in 0.. {
                let id = format!("{sender}_{n}");
                accept(&store, &id).await;
                println!("\naccepted {id}");
            }
        });
    }
    accepting.join_all().await;
}

/// Leases and completes until nothing is left.
async fn drain(store: &SqliteStore) {
    println!("\nready");
    std::io::stdin().lock().read_line(&mut String::new()).expect("a go");
    loop {
        let leased = lease(store, 5).await;
        for leased in &leased {
            println!("\nleased {}", leased.key.id());
            let completed = store.complete(&leased.claim(LEASE), &done()).await.expect("an answer");
            assert_eq!(completed, Hold::Held);
        }
        if leased.is_empty() {
            return;
        }
    }
}

/// Handlers whose effect and completion are one transaction.
pub(crate) fn payments(pool: SqlitePool) -> Router {
    let pay = move |event: WebhookEvent| {
        let pool = pool.clone();
        async move {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            event.complete_in(&mut *transaction).await?;
            sqlx::query("INSERT INTO payments VALUES (?)").bind(event.id()).execute(&mut *transaction).await?;
            println!("\nabout to pay {}", event.id());
            transaction.commit().await?;
            println!("\npaid {}", event.id());
            Ok::<_, HandlerError>(())
        }
    };
    Router::new().route("/webhooks", post(pay))
}

pub(crate) async fn create_payments(pool: &SqlitePool) {
    sqlx::query("CREATE TABLE payments (id TEXT NOT NULL)").execute(pool).await.expect("a table");
}

/// How often each event took effect.
pub(crate) async fn paid(pool: &SqlitePool) -> BTreeMap<String, i64> {
    let counts = sqlx::query_as("SELECT id, count(*) FROM payments GROUP BY id").fetch_all(pool).await;
    counts.expect("a table").into_iter().collect()
}

/// A layer in front of an inbox, and the same handlers behind it.
pub(crate) struct InboxFixture {
    _fixture: Fixture,
    pub(crate) store: SqliteStore,
    app: Router,
    handlers: Router,
    sender: TestSender,
}

impl InboxFixture {
    pub(crate) async fn new(fixture: Fixture, handlers: Router) -> Self {
        let store = SqliteStore::builder().lock_wait(PATIENCE).open(fixture.path()).await.expect("a store");
        let app = handlers.clone().layer(WebhookLayer::inbox(scheme(), store.clone()));
        Self { _fixture: fixture, store, app, handlers, sender: TestSender::new(scheme()) }
    }

    pub(crate) async fn deliver(&self, id: &str) -> StatusCode {
        let request = self.sender.deliver(body(id)).request();
        Answer::read(self.app.clone().oneshot(request).await.expect("a router cannot fail")).await.status
    }

    pub(crate) fn worker(&self) -> Worker<Router> {
        let pauses = RetryPolicy::new().max_attempts(3).first_pause(Duration::from_millis(1));
        Worker::new(self.store.clone(), self.handlers.clone()).retries(pauses.longest_pause(Duration::from_millis(2)))
    }

    pub(crate) async fn ends_as(&self, id: &str, state: EventState) -> QueuedEvent {
        let (worker, key) = (self.worker(), key(id));
        let kept = async || self.store.get(&key).await.expect("an answer").expect("the event");
        eventually("it ends", async || {
            worker.run_until_idle().await;
            kept().await.state == state
        })
        .await;
        kept().await
    }
}

pub(crate) fn body(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"test.event"}}"#)
}
