//! Workers on one file: in this process, and in others that are killed.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use sqlx::sqlite::SqlitePool;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tower::ServiceExt;
use tower_webhook::inbox::{EventState, Filter, Inbox, LAPSED, Page};
use tower_webhook::store::{Hold, SqliteStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, Worker};

use crate::bed::{Bed, LEASE, PATIENCE, done, eventually, key, pool_at};
use crate::inbox::{accept, lease, parcel};
use crate::processes::Process;
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
const fn tireless() -> RetryPolicy {
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
fn payments(pool: SqlitePool) -> Router {
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

async fn create_payments(pool: &SqlitePool) {
    sqlx::query("CREATE TABLE payments (id TEXT NOT NULL)").execute(pool).await.expect("a table");
}

/// How often each event took effect.
async fn paid(pool: &SqlitePool) -> BTreeMap<String, i64> {
    let counts = sqlx::query_as("SELECT id, count(*) FROM payments GROUP BY id").fetch_all(pool).await;
    counts.expect("a table").into_iter().collect()
}

/// A layer in front of an inbox, and the same handlers behind it.
struct Site {
    _bed: Bed,
    store: SqliteStore,
    app: Router,
    handlers: Router,
    sender: TestSender,
}

impl Site {
    async fn new(bed: Bed, handlers: Router) -> Self {
        let store = SqliteStore::builder().lock_wait(PATIENCE).open(bed.path()).await.expect("a store");
        let app = handlers.clone().layer(WebhookLayer::inbox(scheme(), store.clone()));
        Self { _bed: bed, store, app, handlers, sender: TestSender::new(scheme()) }
    }

    async fn deliver(&self, id: &str) -> StatusCode {
        let request = self.sender.deliver(body(id)).request::<axum::body::Body>();
        Answer::read(self.app.clone().oneshot(request).await.expect("a router cannot fail")).await.status
    }

    fn worker(&self) -> Worker<Router> {
        let pauses = RetryPolicy::new().max_attempts(3).first_pause(Duration::from_millis(1));
        Worker::new(self.store.clone(), self.handlers.clone()).retries(pauses.longest_pause(Duration::from_millis(2)))
    }

    async fn ends_as(&self, id: &str, state: EventState) -> tower_webhook::inbox::KeptEvent {
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

fn body(id: &str) -> String {
    format!(r#"{{"id":"{id}","type":"test.event"}}"#)
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_events_survive_a_killed_process() {
    let bed = Bed::new();
    let mut process = Process::start("accept", &bed.path());
    let mut accepted = Vec::new();
    while accepted.len() < 300 {
        accepted.push(process.says("accepted").expect("events"));
    }
    process.child.kill().expect("SIGKILL");
    while let Some(id) = process.says("accepted") {
        accepted.push(id);
    }
    let store = bed.store().await;
    let leased: BTreeMap<_, _> =
        lease(&store, 1_000_000).await.into_iter().map(|leased| (leased.key.id().to_owned(), leased)).collect();
    println!("{} accepted, {} found", accepted.len(), leased.len());
    for id in accepted {
        assert_eq!(leased.get(&id).expect("what was accepted").parcel, parcel(&id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_37_event_of_a_killed_worker_is_run_again() {
    let bed = Bed::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = move |event: WebhookEvent| {
        assert_eq!(event.attempt(), Some(2));
        counter.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let path = bed.path();
    let site = Site::new(bed, Router::new().route("/webhooks", post(handler))).await;
    assert_eq!(site.deliver("evt_1").await, StatusCode::OK);
    let mut process = Process::start("hang", &path);
    assert_eq!(process.says("started").as_deref(), Some("evt_1"));
    assert_eq!(site.worker().run_until_idle().await, 0, "it is the other one's");
    process.child.kill().expect("SIGKILL");
    let kept = site.ends_as("evt_1", EventState::Completed).await;
    assert_eq!((runs.load(Ordering::SeqCst), kept.attempts), (1, 2));
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    assert_eq!(reasons, [LAPSED]);
    assert!(kept.failures[0].ended_at > kept.failures[0].started_at);
    assert_eq!(site.deliver("evt_1").await, StatusCode::OK);
    assert_eq!(site.worker().run_until_idle().await, 0, "a duplicate");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_38_event_that_always_fails_is_a_dead_letter_with_its_bytes() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = move |event: WebhookEvent| {
        let poison = event.id() == "poison";
        counter.fetch_add(usize::from(poison), Ordering::SeqCst);
        async move { if poison { StatusCode::BAD_GATEWAY } else { StatusCode::OK } }
    };
    let site = Site::new(Bed::new(), Router::new().route("/webhooks", post(handler))).await;
    for id in ["poison", "honest"] {
        assert_eq!(site.deliver(id).await, StatusCode::OK);
    }
    let kept = site.ends_as("poison", EventState::Dead).await;
    assert_eq!((runs.load(Ordering::SeqCst), kept.attempts, kept.failures.len()), (3, 3, 3));
    assert_eq!(kept.parcel.expect("the bytes").body, body("poison"));
    site.ends_as("honest", EventState::Completed).await;
    assert_eq!(site.deliver("poison").await, StatusCode::OK);
    assert_eq!(site.worker().run_until_idle().await, 0, "not even if it is delivered again");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_39_operators_who_click_twice_replay_once() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = move |event: WebhookEvent| {
        let run = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match (event.id(), run) {
                ("broken", 1) => Err(HandlerError::permanent("no such account")),
                _ => Ok(()),
            }
        }
    };
    let site = Site::new(Bed::new(), Router::new().route("/webhooks", post(handler))).await;
    for (id, state) in [("done", EventState::Completed), ("broken", EventState::Dead)] {
        assert_eq!(site.deliver(id).await, StatusCode::OK);
        site.ends_as(id, state).await;
    }
    let clicks = async |id: &str, force: bool| {
        let clicks = (0..8).map(|_| {
            let (store, filter) = (site.store.clone(), Filter::one(key(id)));
            tokio::spawn(async move { store.requeue(&filter, force).await.expect("an answer") })
        });
        let clicks = futures_util::future::join_all(clicks.collect::<Vec<_>>()).await;
        clicks.into_iter().map(|click| click.expect("no panic")).sum::<u64>()
    };
    assert_eq!(clicks("done", false).await, 0, "it was done");
    assert_eq!(clicks("broken", false).await, 1);
    assert_eq!(site.worker().run_until_idle().await, 1);
    assert_eq!(clicks("broken", false).await, 0, "it is done now");
    assert_eq!(clicks("done", true).await, 1, "forced");
    assert_eq!(site.worker().run_until_idle().await, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 4);
}

#[test]
fn two_processes_lease_every_event_once() {
    const EVENTS: usize = 400;
    let bed = Bed::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = bed.store().await;
        for n in 0..EVENTS {
            accept(&store, &n.to_string()).await;
        }
    });
    let mut processes = [(); 2].map(|()| Process::start("drain", &bed.path()));
    for process in &mut processes {
        process.says("ready").expect("a process that is ready");
    }
    processes.iter_mut().for_each(Process::go);
    let leased = processes.map(|mut process| {
        std::thread::spawn(move || std::iter::from_fn(|| process.says("leased")).collect::<Vec<_>>())
    });
    let leased = leased.map(|reading| reading.join().expect("no panic"));
    println!("{} and {}", leased[0].len(), leased[1].len());
    let mut all: Vec<usize> = leased.concat().iter().map(|id| id.parse().expect("a number")).collect();
    all.sort_unstable();
    assert_eq!(all, (0..EVENTS).collect::<Vec<_>>());
}

/// Killed at any point of the transaction, and before and after it.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_double_no_effect_and_lose_none() {
    const EVENTS: usize = 150;
    let bed = Bed::new();
    let pool = bed.pool().await;
    create_payments(&pool).await;
    let (path, handlers) = (bed.path(), payments(pool.clone()));
    let site = Site::new(bed, handlers).await;
    for n in 0..EVENTS {
        assert_eq!(site.deliver(&format!("evt_{n}")).await, StatusCode::OK);
    }
    for round in 0..6 {
        let mut process = Process::start("pay", &path);
        let word = if round % 2 == 0 { "about to pay" } else { "paid" };
        for _ in 0..5 + round {
            process.says(word).expect("work");
        }
        process.child.kill().expect("SIGKILL");
    }
    let worker = site.worker().retries(tireless());
    eventually("everything is done", async || {
        worker.run_until_idle().await;
        site.store.counts().await.expect("an answer").completed == EVENTS as u64
    })
    .await;
    let paid = paid(&pool).await;
    assert_eq!((paid.len(), paid.values().max()), (EVENTS, Some(&1)), "{paid:?}");
    let killed = site.store.list(&Filter::all(), &Page::first(EVENTS)).await.expect("an answer");
    println!("{} were taken over", killed.iter().filter(|event| event.attempts > 1).count());
}

/// Its lease has lapsed, another worker has done the work, and now it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn zombie_of_a_worker_has_no_effect() {
    let bed = Bed::new();
    let pool = bed.pool().await;
    create_payments(&pool).await;
    let (go, first) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
    let (gate, turn, ledger) = (go.clone(), first.clone(), pool.clone());
    let handler = move |event: WebhookEvent| {
        let (gate, turn, pool) = (gate.clone(), turn.clone(), ledger.clone());
        async move {
            if turn.try_acquire().is_ok_and(|turn| {
                turn.forget();
                true
            }) {
                gate.acquire().await.expect("never closed").forget();
            }
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            event.complete_in(&mut *transaction).await?;
            sqlx::query("INSERT INTO payments VALUES (?)").bind(event.id()).execute(&mut *transaction).await?;
            Ok::<_, HandlerError>(transaction.commit().await?)
        }
    };
    let site = Arc::new(Site::new(bed, Router::new().route("/webhooks", post(handler))).await);
    assert_eq!(site.deliver("evt_1").await, StatusCode::OK);
    let zombie = tokio::spawn({
        let site = site.clone();
        async move { site.worker().run_until_idle().await }
    });
    eventually("it runs", async || first.available_permits() == 0).await;
    sqlx::query("UPDATE webhook_events SET lease_until = 0").execute(&pool).await.expect("a lease passes");
    let kept = site.ends_as("evt_1", EventState::Completed).await;
    assert_eq!(kept.attempts, 2);
    go.add_permits(1);
    zombie.await.expect("no panic");
    assert_eq!(paid(&pool).await, BTreeMap::from([("evt_1".to_owned(), 1)]));
    let kept = site.store.get(&key("evt_1")).await.expect("an answer").expect("the event");
    assert_eq!((kept.state, kept.attempts, kept.failures.len()), (EventState::Completed, 2, 1));
}

/// The effect is rolled back with the completion, and why is written down outside of that transaction.
#[tokio::test(flavor = "multi_thread")]
async fn failure_is_noted_down_although_the_transaction_is_rolled_back() {
    let bed = Bed::new();
    let pool = bed.pool().await;
    create_payments(&pool).await;
    let (runs, ledger) = (Arc::new(AtomicUsize::new(0)), pool.clone());
    let handler = move |event: WebhookEvent| {
        let (pool, run) = (ledger.clone(), runs.fetch_add(1, Ordering::SeqCst));
        async move {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            event.complete_in(&mut *transaction).await?;
            sqlx::query("INSERT INTO payments VALUES (?)").bind(event.id()).execute(&mut *transaction).await?;
            if run == 0 {
                transaction.rollback().await?;
                return Err(HandlerError::transient("the bank is closed"));
            }
            Ok(transaction.commit().await?)
        }
    };
    let site = Site::new(bed, Router::new().route("/webhooks", post(handler))).await;
    assert_eq!(site.deliver("evt_1").await, StatusCode::OK);
    let kept = site.ends_as("evt_1", EventState::Completed).await;
    assert_eq!((kept.attempts, kept.failures.len()), (2, 1));
    assert!(kept.failures[0].reason.contains("the bank is closed"), "{:?}", kept.failures);
    assert_eq!(paid(&pool).await, BTreeMap::from([("evt_1".to_owned(), 1)]));
}
