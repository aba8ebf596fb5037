//! Rows 37 to 39 with a worker, and the exactly-once effect from the inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use sqlx::AssertSqlSafe;
use tokio::sync::{Notify, mpsc};
use tower::ServiceExt;
use tower_webhook::inbox::Inbox;
use tower_webhook::queue::{EventState, Filter, LAPSED, Queue};
use tower_webhook::rejection::{Rejection, RejectionKind};
use tower_webhook::store::PostgresStore;
use tower_webhook::testing::TestSender;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{Outcome, WebhookEvent, WebhookLayer, Worker};

use crate::postgres::fixture::{Fixture, LEASE, PATIENCE, eventually, key};
use crate::support::scheme;

/// Has a layer keep an event in the store.
pub(crate) async fn deliver(store: &PostgresStore, id: &str) {
    let unused = Router::new().route("/webhooks", post(|| async { StatusCode::IM_A_TEAPOT }));
    let app = unused.layer(WebhookLayer::inbox(scheme(), store.clone()));
    let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
    let answer = app.oneshot(delivery.request()).await.expect("a router cannot fail");
    assert_eq!(answer.extensions().get(), Some(&Outcome::Accepted));
}

/// A service that counts its runs and answers `status`.
fn counting(status: StatusCode) -> (Router, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let service = Router::new().route(
        "/webhooks",
        post(move |_: WebhookEvent| async move {
            counted.fetch_add(1, Ordering::Relaxed);
            status
        }),
    );
    (service, runs)
}

#[test]
fn row_37_event_of_a_worker_that_is_gone_is_run_by_another_one() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("one");
    let (here, there) = (runtime(), runtime());
    let fixture = here.block_on(Fixture::new());
    here.block_on(deliver(&fixture.store, "evt_1"));
    let (started, mut starts) = mpsc::unbounded_channel();
    there.block_on(async {
        let pool = crate::postgres::fixture::shared().pool();
        let store = PostgresStore::builder(pool).table(&fixture.table).expect("a name").build();
        let hang = post(move |event: WebhookEvent| async move {
            started.send(event.attempt()).expect("a test");
            std::future::pending::<()>().await;
        });
        let worker = Worker::new(store, Router::new().route("/webhooks", hang));
        tokio::spawn(worker.run(std::future::pending()));
    });
    assert_eq!(here.block_on(starts.recv()), Some(Some(1)));
    // As with SIGKILL, nothing of it is settled.
    there.shutdown_timeout(Duration::from_secs(10));
    here.block_on(async {
        let (service, runs) = counting(StatusCode::OK);
        let worker = Worker::new(fixture.store.clone(), service);
        assert_eq!(worker.run_until_idle().await, 0, "it is leased");
        fixture.pass(2 * LEASE).await;
        assert_eq!(worker.run_until_idle().await, 1);
        let kept = fixture.store.get(&key("evt_1")).await.expect("an answer").expect("the event");
        assert_eq!((kept.state, kept.attempts, runs.load(Ordering::Relaxed)), (EventState::Completed, 2, 1));
        let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
        assert_eq!(reasons, [LAPSED]);
    });
}

/// An inbox in which one event may wait.
fn of_one(store: PostgresStore) -> Inbox {
    Inbox::new(store).max_waiting_events(1).expect("some")
}

/// Handlers that hold every connection of the pool must not make a full inbox look like a broken one.
#[tokio::test]
async fn full_inbox_answers_while_handlers_hold_every_connection() {
    let fixture = Fixture::new().await;
    deliver(&fixture.store, "first").await;
    let mut held = Vec::new();
    for _ in 0..fixture.pool.options().get_max_connections() {
        held.push(fixture.pool.acquire().await.expect("a connection"));
    }
    let layer =
        WebhookLayer::inbox(scheme(), of_one(fixture.store.clone())).claim_deadline(PATIENCE).expect("some time");
    let app = Router::new().route("/webhooks", post(|| async { StatusCode::IM_A_TEAPOT })).layer(layer);
    for (id, status) in [("second", StatusCode::SERVICE_UNAVAILABLE), ("first", StatusCode::OK)] {
        let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
        let answer = app.clone().oneshot(delivery.request()).await.expect("a router cannot fail");
        assert_eq!(answer.status(), status, "{id}");
        let refused = answer.extensions().get().and_then(Outcome::rejection).map(Rejection::kind);
        assert_eq!(refused, (id == "second").then_some(RejectionKind::Backlogged), "{id}");
    }
}

#[tokio::test]
async fn row_38_event_that_always_fails_is_a_dead_letter_with_its_bytes() {
    let fixture = Fixture::new().await;
    deliver(&fixture.store, "poison").await;
    deliver(&fixture.store, "sound").await;
    let sound = Arc::new(AtomicUsize::new(0));
    let (counted, letters) = (sound.clone(), Arc::new(AtomicUsize::new(0)));
    let handler = post(move |event: WebhookEvent| async move {
        if event.id() == "poison" {
            return StatusCode::INTERNAL_SERVER_ERROR;
        }
        counted.fetch_add(1, Ordering::Relaxed);
        StatusCode::OK
    });
    let told = letters.clone();
    let worker = Worker::new(fixture.store.clone(), Router::new().route("/webhooks", handler))
        .retries(RetryPolicy::new().max_attempts(3).first_pause(Duration::ZERO))
        .on_dead_letter(move |letter| {
            assert_eq!((letter.attempt, letter.permanent), (3, false));
            told.fetch_add(1, Ordering::Relaxed);
        });
    assert_eq!(worker.run_until_idle().await, 4);
    assert_eq!((sound.load(Ordering::Relaxed), letters.load(Ordering::Relaxed)), (1, 1), "it blocks nobody");
    let dead = fixture.store.get(&key("poison")).await.expect("an answer").expect("the dead letter");
    assert_eq!((dead.state, dead.attempts, dead.failures.len()), (EventState::Dead, 3, 3));
    assert_eq!(&*dead.request.expect("kept whole").body, br#"{"id":"poison","type":"test.event"}"#);
}

#[tokio::test]
async fn row_39_completed_event_is_not_replayed_and_a_double_click_is_one_requeue() {
    let fixture = Fixture::new().await;
    let filter = Filter::one(key("evt_1"));
    deliver(&fixture.store, "evt_1").await;
    let failing = Worker::new(fixture.store.clone(), counting(StatusCode::INTERNAL_SERVER_ERROR).0);
    assert_eq!(failing.retries(RetryPolicy::new().max_attempts(1)).run_until_idle().await, 1);
    let clicks = [fixture.store.requeue(&filter, false), fixture.store.requeue(&filter, false)];
    let requeued =
        futures_util::future::join_all(clicks).await.into_iter().map(|click| click.expect("an answer").events);
    assert_eq!(requeued.sum::<u64>(), 1);
    let (service, runs) = counting(StatusCode::OK);
    let worker = Worker::new(fixture.store.clone(), service);
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(fixture.store.requeue(&filter, false).await.expect("an answer").events, 0);
    assert_eq!(worker.run_until_idle().await, 0);
    assert_eq!(fixture.store.requeue(&filter, true).await.expect("an answer").events, 1, "unless it is forced");
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(runs.load(Ordering::Relaxed), 2);
}

/// Effects in a table, each in the transaction that completes its event. `pause` is called before the first one is.
fn transactional(fixture: &Fixture, pause: Option<(Arc<Notify>, Arc<Notify>)>) -> Router {
    let (pool, insert) = (fixture.pool.clone(), fixture.about("INSERT INTO events_effects VALUES ($1)"));
    let handler = post(move |event: WebhookEvent| async move {
        if let Some((paused, go)) = &pause
            && event.attempt() == Some(1)
        {
            paused.notify_one();
            go.notified().await;
        }
        let mut transaction = pool.begin().await.expect("a transaction");
        if event.complete_in(&mut *transaction).await.is_err() {
            return StatusCode::CONFLICT;
        }
        let effect = sqlx::query(AssertSqlSafe(&*insert)).bind(event.id().to_owned());
        effect.execute(&mut *transaction).await.expect("an effect");
        // Rolled back: the effect, and the completion with it.
        if event.id() == "flaky" && event.attempt() == Some(1) {
            return StatusCode::OK;
        }
        transaction.commit().await.expect("committed");
        StatusCode::OK
    });
    Router::new().route("/webhooks", handler)
}

#[tokio::test]
async fn effect_and_completion_of_a_queued_event_are_committed_together_or_not_at_all() {
    let fixture = Fixture::new().await;
    fixture.run("CREATE TABLE events_effects (event text)").await;
    for id in ["evt_1", "evt_2", "flaky"] {
        deliver(&fixture.store, id).await;
    }
    let retries = RetryPolicy::new().first_pause(Duration::ZERO);
    let worker = Worker::new(fixture.store.clone(), transactional(&fixture, None)).retries(retries);
    assert_eq!(worker.run_until_idle().await, 4);
    assert_eq!(fixture.count("SELECT count(*) FROM events_effects").await, 3);
    assert_eq!(fixture.count("SELECT count(DISTINCT event) FROM events_effects").await, 3);
    assert_eq!(fixture.store.counts().await.expect("counts").completed, 3);
    let flaky = fixture.store.get(&key("flaky")).await.expect("an answer").expect("the event");
    assert_eq!((flaky.attempts, flaky.failures.len()), (2, 1));
}

#[tokio::test]
async fn worker_that_comes_back_after_its_lease_doubles_no_effect() {
    let fixture = Fixture::new().await;
    fixture.run("CREATE TABLE events_effects (event text)").await;
    deliver(&fixture.store, "evt_1").await;
    let (paused, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let service = transactional(&fixture, Some((paused.clone(), go.clone())));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    // With room for one event, it does not take its own over.
    let zombie = Worker::new(fixture.another(), service.clone()).concurrency(1).expect("a number");
    let zombie = tokio::spawn(zombie.run(async move { _ = stopped.await }));
    paused.notified().await;
    fixture.pass(2 * LEASE).await;
    assert_eq!(Worker::new(fixture.store.clone(), service).run_until_idle().await, 1);
    go.notify_one();
    stop.send(()).expect("it works");
    zombie.await.expect("no panic");
    eventually("nothing runs", async || fixture.store.counts().await.expect("counts").running == 0).await;
    assert_eq!(fixture.count("SELECT count(*) FROM events_effects").await, 1);
    let kept = fixture.store.get(&key("evt_1")).await.expect("an answer").expect("the event");
    assert_eq!((kept.state, kept.attempts), (EventState::Completed, 2));
}

/// Its last attempt was leased, and the worker was gone before it began.
#[tokio::test]
async fn event_that_was_never_started_does_not_die() {
    let fixture = Fixture::new().await;
    deliver(&fixture.store, "evt_1").await;
    let (service, runs) = counting(StatusCode::OK);
    for _ in 0..3 {
        assert_eq!(
            fixture.store.lease(&tower_webhook::queue::LeaseRequest::new(1, LEASE)).await.expect("an answer").len(),
            1
        );
        fixture.pass(2 * LEASE).await;
    }
    let worker = Worker::new(fixture.store.clone(), service).retries(RetryPolicy::new().max_attempts(1));
    assert_eq!((worker.run_until_idle().await, runs.load(Ordering::Relaxed)), (1, 1));
    let event = fixture.store.get(&key("evt_1")).await.expect("an answer").expect("the event");
    assert_eq!(event.state, EventState::Completed);
}

/// Handlers have taken every connection of the pool.
#[tokio::test]
async fn what_is_known_is_told_while_the_pool_is_busy() {
    let fixture = Fixture::new().await;
    deliver(&fixture.store, "evt_1").await;
    let mut taken = Vec::new();
    for _ in 0..fixture.pool.options().get_max_connections() {
        taken.push(fixture.pool.acquire().await.expect("a connection"));
    }
    for (id, expected) in [("evt_1", Some(false)), ("evt_2", None)] {
        let key = key(id);
        let claim = fixture.claim(&key, tower_webhook::store::ClaimToken::random());
        let known = fixture.store.peek(&claim).await.expect("an answer");
        assert_eq!(known, expected.map(|same_body| tower_webhook::store::Claim::Accepted { same_body }), "{id}");
    }
    assert_eq!(fixture.store.waiting(10).await.expect("an answer"), 1);
}
