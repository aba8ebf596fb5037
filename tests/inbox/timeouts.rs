//! Handlers that do not end.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tower_webhook::queue::EventState;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{WebhookEvent, Worker};

use crate::inbox::fixture::Fixture;
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::logs::Logs;
use crate::support::wait::{PATIENCE, eventually};

/// Counts handlers that were dropped before their end.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A receiver whose handler never ends in the first `hanging` attempts.
fn hanging_for(hanging: u32) -> (Fixture, Arc<AtomicUsize>) {
    let dropped = Arc::<AtomicUsize>::default();
    let count = dropped.clone();
    let handler = async move |event: WebhookEvent| {
        if event.attempt() <= Some(hanging) {
            let _dropped = Dropped(count.clone());
            pending::<()>().await;
        }
    };
    (Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer), dropped)
}

#[tokio::test(start_paused = true)]
async fn attempt_that_does_not_end_is_dropped_and_tried_again() {
    let (fixture, dropped) = hanging_for(1);
    fixture.accepts(&fixture.event("evt_1")).await;
    let begun = Instant::now();
    assert_eq!(fixture.worker().run_until_idle().await, 2);
    let taken = begun.elapsed();
    assert!((600..610).contains(&taken.as_secs()), "ten minutes by default, and not {taken:?}");
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let event = fixture.kept("evt_1").await;
    assert_eq!((event.state, event.attempts), (EventState::Completed, 2));
    assert_eq!(&*event.failures[0].reason, "the handler did not end within 600s, and was dropped");
}

#[tokio::test(start_paused = true)]
async fn event_that_never_ends_becomes_a_dead_letter() {
    let (fixture, dropped) = hanging_for(u32::MAX);
    fixture.accepts(&fixture.event("evt_1")).await;
    let letters = Arc::new(Mutex::new(Vec::new()));
    let noted = letters.clone();
    let policy = RetryPolicy::new().max_attempts(3).first_pause(Duration::ZERO);
    let worker = fixture.worker().retries(policy).attempt_timeout(Duration::from_secs(5)).expect("a timeout");
    let worker = worker.on_dead_letter(move |letter| {
        noted.lock().expect("no panic").push((letter.attempt, letter.reason.to_owned(), letter.permanent));
    });
    assert_eq!(worker.run_until_idle().await, 3);
    assert_eq!(dropped.load(Ordering::SeqCst), 3);
    fixture.is_in("evt_1", EventState::Dead).await;
    let reason = "the handler did not end within 5s, and was dropped".to_owned();
    assert_eq!(*letters.lock().expect("no panic"), [(3, reason, false)]);
}

#[tokio::test(start_paused = true)]
async fn types_have_timeouts_of_their_own() {
    let (fixture, _) = hanging_for(1);
    let worker = fixture.worker().attempt_timeout(Duration::from_secs(100)).expect("a timeout");
    let worker = worker.attempt_timeout_of_type("report.due", Duration::from_secs(3_000)).expect("a timeout");
    for (event_type, seconds) in [("report.due", 3_000), ("invoice.paid", 100)] {
        fixture.accepts(&fixture.typed(event_type, event_type)).await;
        let begun = Instant::now();
        assert_eq!(worker.run_until_idle().await, 2);
        let taken = begun.elapsed().as_secs();
        assert!((seconds..seconds + 10).contains(&taken), "{event_type}: {taken}");
    }
}

/// A handler that has ended is not blocked, however long the queue takes to be told.
#[tokio::test(start_paused = true)]
async fn settlement_that_takes_long_is_no_blocked_handler() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::new();
    fixture.accepts(&fixture.event("evt_1")).await;
    let store = Faulty::new(fixture.inbox.clone());
    store.breaks(Verb::Complete, Fault::Fail);
    let worker = Worker::new(store.clone(), fixture.handlers.clone());
    let worker = worker.attempt_timeout(Duration::from_secs(5)).expect("a timeout");
    let (stop, stopped) = oneshot::channel::<()>();
    let running = worker.run(async {
        let _ = stopped.await;
    });
    let watching = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        store.heal(Verb::Complete);
        eventually("the end", async || fixture.kept("evt_1").await.state == EventState::Completed).await;
        stop.send(()).expect("the worker waits");
    };
    tokio::join!(running, watching);
    assert_eq!(logs.count("blocks its thread"), 0, "{:#?}", logs.lines());
}

/// The handler blocks a thread of the runtime; the worker has another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn handler_that_blocks_its_thread_is_reported_once() {
    let (logs, _guard) = Logs::capture();
    let (unblock, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let handler = async move |_: WebhookEvent| {
        let _ = blocked.lock().expect("no panic").recv_timeout(PATIENCE);
    };
    let fixture = Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer);
    fixture.accepts(&fixture.event("evt_1")).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let brief = Duration::from_millis(20);
    let worker = Worker::new(fixture.inbox.clone(), fixture.handlers.clone());
    let worker = worker.attempt_timeout(brief).and_then(|worker| worker.poll_every(brief)).expect("a worker");
    // On this thread, whose log is captured; the handler has another.
    let running = worker.run(async {
        let _ = stopped.await;
    });
    let watching = async {
        eventually("a report", async || logs.count("blocks its thread") > 0).await;
        unblock.send(()).expect("the handler waits");
        eventually("the end", async || fixture.kept("evt_1").await.state == EventState::Completed).await;
        stop.send(()).expect("the worker waits");
    };
    tokio::join!(running, watching);
    assert_eq!(logs.count("blocks its thread"), 1);
}
