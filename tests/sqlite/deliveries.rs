//! Deliveries through the layer, with the effect and the store in one database.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::post;
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqlitePool;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_webhook::rejection::RejectionKind;
use tower_webhook::store::{SqliteStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::{WebhookEvent, WebhookLayer};

use crate::sqlite::disks::SmallDisk;
use crate::sqlite::fixture::{Fixture, PATIENCE, key, pool_at, write_lock};
use crate::support::checker::{Dice, asked_seed};
use crate::support::{Answer, scheme};

/// A receiver whose handler writes its effect, and completes its event, in one transaction.
#[derive(Clone)]
struct Receiver {
    app: Router,
    pool: SqlitePool,
    sender: TestSender,
    /// Events whose id begins with "slow" wait for this in the middle of their transaction.
    go: Arc<Semaphore>,
    /// A permit for each of them that has come so far.
    waiting: Arc<Semaphore>,
    books: Arc<Mutex<Books>>,
}

#[derive(Default)]
struct Books {
    acknowledged: BTreeSet<String>,
    signed: BTreeSet<String>,
}

impl Receiver {
    async fn at(path: &Path) -> Self {
        let pool = pool_at(path).await;
        let store = SqliteStore::builder().lock_wait(Duration::from_millis(500)).build(&pool).await.expect("a store");
        let table = "CREATE TABLE IF NOT EXISTS effects (id TEXT, token BLOB)";
        sqlx::query(table).execute(&pool).await.expect("a table");
        let complete = store.enlistment().expect("a statement").sql().to_owned();
        let (go, waiting) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (ledger, gates) = (pool.clone(), (waiting.clone(), go.clone()));
        let handler = move |event: WebhookEvent| {
            let (pool, complete, gates) = (ledger.clone(), complete.clone(), gates.clone());
            async move { record(&pool, complete, &event, (&gates.0, &gates.1)).await }
        };
        let layer = WebhookLayer::new(scheme(), store).in_flight_wait(Duration::ZERO);
        let app = Router::new().route("/webhooks", post(handler)).layer(layer);
        Self { app, pool, sender: TestSender::new(scheme()), go, waiting, books: Arc::default() }
    }

    /// Another receiver's books are this one's, too.
    fn with_books_of(self, other: &Self) -> Self {
        Self { books: other.books.clone(), ..self }
    }

    async fn deliver(&self, id: &str) -> Answer {
        self.books.lock().expect("no panic").signed.insert(key(id).as_str().to_owned());
        let delivery = self.sender.deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
        let answer = self.send(delivery.request_as()).await;
        if answer.status.is_success() {
            self.books.lock().expect("no panic").acknowledged.insert(id.to_owned());
        }
        answer
    }

    async fn forge(&self, id: &str) -> Answer {
        self.send(self.sender.deliver(format!(r#"{{"id":"{id}"}}"#)).tampered().request_as()).await
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        Answer::read(self.app.clone().oneshot(request).await.expect("a router cannot fail")).await
    }

    async fn effects(&self, id: &str) -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM effects WHERE id = ?").bind(id);
        count.fetch_one(&self.pool).await.expect("a number")
    }

    /// Never lost, never doubled, never let in.
    async fn check(&self, scenario: &str) {
        let effects: Vec<(String, i64)> = sqlx::query_as("SELECT id, count(*) FROM effects GROUP BY id")
            .fetch_all(&self.pool)
            .await
            .expect("the effects");
        let keys: BTreeSet<String> = sqlx::query_scalar("SELECT key FROM webhook_events")
            .fetch_all(&self.pool)
            .await
            .expect("keys")
            .into_iter()
            .collect();
        let books = self.books.lock().expect("no panic");
        for id in &books.acknowledged {
            assert!(effects.iter().any(|(effect, _)| effect == id), "lost: {id}; {scenario}");
        }
        for (id, count) in &effects {
            assert_eq!(*count, 1, "doubled: {id}; {scenario}");
        }
        assert!(keys.is_subset(&books.signed), "let in: {:?}; {scenario}", keys.difference(&books.signed));
    }
}

async fn record(
    pool: &SqlitePool,
    complete: String,
    event: &WebhookEvent,
    (waiting, go): (&Semaphore, &Semaphore),
) -> StatusCode {
    let recorded = async {
        let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
        let completed = sqlx::query(AssertSqlSafe(complete))
            .bind(event.key().as_str())
            .bind(&event.token().as_bytes()[..])
            .bind("200 OK")
            .bind(3_600_000_i64)
            .execute(&mut *transaction)
            .await?;
        if completed.rows_affected() == 0 {
            return Ok(StatusCode::CONFLICT);
        }
        let effect = sqlx::query("INSERT INTO effects VALUES (?, ?)").bind(event.id());
        effect.bind(&event.token().as_bytes()[..]).execute(&mut *transaction).await?;
        if event.id().starts_with("slow") {
            waiting.add_permits(1);
            go.acquire().await.expect("never closed").forget();
        }
        if event.id().starts_with("unlucky") && event.attempt() < Some(3) {
            return Ok(StatusCode::INTERNAL_SERVER_ERROR);
        }
        transaction.commit().await?;
        Ok::<_, sqlx::Error>(StatusCode::OK)
    };
    recorded.await.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// Row 2, across a restart.
#[tokio::test(flavor = "multi_thread")]
async fn row_2_duplicate_after_a_restart_is_recognised() {
    let fixture = Fixture::new();
    let books = {
        let receiver = Receiver::at(&fixture.path()).await;
        assert_eq!(receiver.deliver("evt_1").await.status, StatusCode::OK);
        receiver
    };
    books.pool.close().await;
    let receiver = Receiver::at(&fixture.path()).await.with_books_of(&books);
    assert_eq!(receiver.deliver("evt_1").await.status, StatusCode::OK);
    assert_eq!(receiver.effects("evt_1").await, 1);
    assert_eq!(receiver.forge("evt_2").await.status, StatusCode::UNAUTHORIZED);
    receiver.check("a restart").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_refuses_new_events_and_answers_duplicates() {
    let fixture = Fixture::new();
    let receiver = Receiver::at(&fixture.path()).await;
    assert_eq!(receiver.deliver("done").await.status, StatusCode::OK);
    let slow = {
        let receiver = receiver.clone();
        tokio::spawn(async move { receiver.deliver("slow").await })
    };
    receiver.waiting.acquire().await.expect("never closed").forget();
    let refused = receiver.deliver("new").await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.rejection(), Some(RejectionKind::StoreUnavailable));
    assert!(refused.retry_after().is_some());
    for _ in 0..10 {
        assert_eq!(receiver.deliver("done").await.status, StatusCode::OK, "a duplicate only reads");
    }
    let running = receiver.deliver("slow").await;
    assert_eq!(running.rejection(), Some(RejectionKind::InFlight), "never 200 for work that may still fail");

    receiver.go.add_permits(1);
    assert_eq!(slow.await.expect("no panic").status, StatusCode::OK);
    for id in ["new", "slow", "done"] {
        assert_eq!(receiver.deliver(id).await.status, StatusCode::OK, "{id}");
        assert_eq!(receiver.effects(id).await, 1, "{id}");
    }
    receiver.check("an open transaction").await;
}

/// Rows 20 and 36: a full disk is a store that is away.
#[tokio::test(flavor = "multi_thread")]
async fn row_36_full_disk_is_503_until_there_is_room() {
    let Some(disk) = SmallDisk::for_test("sqlite::deliveries::row_36_full_disk_is_503_until_there_is_room") else {
        return;
    };
    let receiver = Receiver::at(&disk.path()).await;
    assert_eq!(receiver.deliver("before").await.status, StatusCode::OK);
    disk.fill();
    // What room is left in files that are there already is used up first.
    let mut refused = None;
    for n in 0..200 {
        let answer = receiver.deliver(&format!("during_{n}")).await;
        if answer.rejection() == Some(RejectionKind::StoreUnavailable) {
            refused = Some((n, answer));
            break;
        }
    }
    let (n, answer) = refused.expect("a disk that is full");
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(receiver.deliver("before").await.status, StatusCode::OK, "a duplicate only reads");
    disk.empty();
    for n in 0..=n {
        assert_eq!(receiver.deliver(&format!("during_{n}")).await.status, StatusCode::OK);
    }
    receiver.check("a full disk").await;
    receiver.pool.close().await;
}

/// Row 1, over two receivers on one file: they act as one.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn row_1_two_receivers_on_one_file_run_an_event_once() {
    let fixture = Fixture::new();
    let one = Receiver::at(&fixture.path()).await;
    let other = Receiver::at(&fixture.path()).await.with_books_of(&one);
    let mut deliveries = JoinSet::new();
    for n in 0..100 {
        let receiver = if n % 2 == 0 { one.clone() } else { other.clone() };
        deliveries.spawn(async move { receiver.deliver("evt_1").await.status });
    }
    for status in deliveries.join_all().await {
        assert!(status == StatusCode::OK || status == StatusCode::SERVICE_UNAVAILABLE, "{status}");
    }
    assert_eq!(one.deliver("evt_1").await.status, StatusCode::OK);
    assert_eq!(one.effects("evt_1").await, 1);
    one.check("a hundred at once").await;
}

/// Two receivers, a sender that repeats itself and retries, a forger, and somebody else's transactions in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_traffic_keeps_the_invariants() {
    let seed = asked_seed().unwrap_or(7);
    println!("FAULTS_SEED={seed}");
    let fixture = Fixture::new();
    let one = Receiver::at(&fixture.path()).await;
    let other = Receiver::at(&fixture.path()).await.with_books_of(&one);
    let mut senders = JoinSet::new();
    for n in 0..120 {
        let mut dice = Dice::new(seed).part(&n.to_string());
        let receivers = [one.clone(), other.clone()];
        senders.spawn(async move {
            let id = if dice.below(4) == 0 { format!("unlucky_{n}") } else { format!("evt_{n}") };
            let mut acknowledged = 0;
            // A sender's patience: longer than the lease of a claim whose caller left, and that nobody could release at once.
            let until = Instant::now() + 2 * PATIENCE;
            while Instant::now() < until {
                let receiver = &receivers[dice.below(2) as usize];
                match dice.below(8) {
                    0 => assert_eq!(receiver.forge(&format!("forged_{n}")).await.status, StatusCode::UNAUTHORIZED),
                    1 => drop(tokio::time::timeout(Duration::from_millis(dice.below(8)), receiver.deliver(&id)).await),
                    _ => acknowledged += usize::from(receiver.deliver(&id).await.status.is_success()),
                }
                if acknowledged == 2 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(dice.below(10))).await;
            }
            panic!("{id} was never acknowledged; FAULTS_SEED={seed}");
        });
    }
    let pool = one.pool.clone();
    let disturber = tokio::spawn(async move {
        for _ in 0..10 {
            let transaction = write_lock(&pool).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            transaction.rollback().await.expect("an end");
        }
    });
    senders.join_all().await;
    disturber.await.expect("no panic");
    one.check(&format!("FAULTS_SEED={seed}")).await;
}
