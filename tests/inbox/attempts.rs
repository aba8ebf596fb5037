//! `Worker::on_attempt`: told of every attempt, once the queue has confirmed how it ended.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::response::IntoResponse;
use axum::routing::post;
use tokio::sync::oneshot;
use tower_webhook::queue::EventState;
use tower_webhook::worker::{AttemptOutcome, AttemptReport, RetryPolicy};
use tower_webhook::{HandlerError, WebhookEvent, Worker};

use crate::inbox::fixture::Fixture;
use crate::support::NOW;
use crate::support::faulty::{Fault, Faulty, Verb};
use crate::support::wait::eventually;

/// Attempt, outcome, seconds and reason of each call.
type Told = Arc<Mutex<Vec<(u32, AttemptOutcome, u64, Option<String>)>>>;

fn noting(told: &Told) -> impl Fn(&AttemptReport<'_>) + Send + Sync + 'static {
    let told = told.clone();
    move |report| {
        assert_eq!((report.key.id(), report.event_type), ("evt_1", Some("test.event")));
        assert_eq!(report.received_at, UNIX_EPOCH + Duration::from_secs(NOW));
        let (took, reason) = (report.took.as_secs(), report.reason.map(str::to_owned));
        told.lock().expect("no panic").push((report.attempt, report.outcome, took, reason));
    }
}

/// A handler that takes two seconds: it fails, panics, and then does as its last attempt is told.
fn failing(last: fn() -> axum::response::Response) -> Fixture {
    let handler = async move |event: WebhookEvent| {
        tokio::time::sleep(Duration::from_secs(2)).await;
        match event.attempt() {
            Some(1) => HandlerError::transient("the database is away").into_response(),
            Some(2) => panic!("asked to"),
            _ => last(),
        }
    };
    Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer)
}

#[tokio::test(start_paused = true)]
async fn every_attempt_is_told_with_its_facts() {
    for (last, outcome, reason) in [
        ((|| ().into_response()) as fn() -> axum::response::Response, AttemptOutcome::Completed, None),
        (|| HandlerError::permanent("no").into_response(), AttemptOutcome::Buried, Some("no".to_owned())),
        (|| HandlerError::transient("still").into_response(), AttemptOutcome::Buried, Some("still".to_owned())),
    ] {
        let fixture = failing(last);
        fixture.accepts(&fixture.event("evt_1")).await;
        let told = Told::default();
        let retries = RetryPolicy::new().max_attempts(3).first_pause(Duration::ZERO);
        let worker = Worker::new(fixture.inbox.clone(), fixture.handlers.clone()).retries(retries);
        assert_eq!(worker.on_attempt(noting(&told)).run_until_idle().await, 3);
        let retried = |attempt, reason: &str| (attempt, AttemptOutcome::Retried, 2, Some(reason.to_owned()));
        let expected =
            [retried(1, "the database is away"), retried(2, "the handler panicked"), (3, outcome, 2, reason)];
        assert_eq!(*told.lock().expect("no panic"), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn attempt_is_told_once_the_queue_has_confirmed_its_end() {
    let fixture = Fixture::new();
    fixture.accepts(&fixture.event("evt_1")).await;
    let (told, queue) = (Told::default(), Faulty::new(fixture.inbox.clone()));
    queue.breaks(Verb::Complete, Fault::LoseReply);
    let handler = async |_: WebhookEvent| ();
    let worker = Worker::new(queue.clone(), Router::new().route("/webhooks", post(handler)));
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.on_attempt(noting(&told)).run(async { _ = stopped.await }));
    queue.called(Verb::Complete, 3).await;
    assert_eq!(told.lock().expect("no panic").len(), 0);
    queue.heal(Verb::Complete);
    drop(stop);
    assert_eq!(working.await.expect("no panic").dropped, 0);
    assert_eq!(*told.lock().expect("no panic"), [(1, AttemptOutcome::Completed, 0, None)]);
}

/// A worker on an inbox with faults, whose handler never ends in the first attempt.
fn hanging() -> (Fixture, Faulty, Worker<Router>, Told) {
    let handler = async |event: WebhookEvent| {
        if event.attempt() == Some(1) {
            pending::<()>().await;
        }
    };
    let fixture = Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer);
    let (told, queue) = (Told::default(), Faulty::new(fixture.inbox.clone()));
    let worker = Worker::new(queue.clone(), fixture.handlers.clone()).on_attempt(noting(&told));
    (fixture, queue, worker, told)
}

/// The handler was dropped when its lease had lapsed, and the event was leased again before the release came through.
#[tokio::test(start_paused = true)]
async fn dropped_attempt_whose_event_was_taken_over_is_told_as_lost() {
    let (fixture, queue, worker, told) = hanging();
    fixture.accepts(&fixture.event("evt_1")).await;
    for verb in [Verb::Renew, Verb::Release] {
        queue.breaks(verb, Fault::Fail);
    }
    let worker = worker.cancel_on_lost_claim().lease(Duration::from_secs(3)).expect("a lease");
    let (stop, stopped) = oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async { _ = stopped.await }));
    eventually("the second attempt", async || fixture.kept("evt_1").await.state == EventState::Completed).await;
    queue.heal(Verb::Release);
    drop(stop);
    assert_eq!(working.await.expect("no panic").dropped, 0);
    let told = told.lock().expect("no panic").clone();
    assert_eq!(told, [(2, AttemptOutcome::Completed, 0, None), (1, AttemptOutcome::Lost, 3, None)]);
}

#[tokio::test(start_paused = true)]
async fn dropped_attempt_is_told_as_released_only_if_the_queue_has_confirmed_it() {
    for (fault, outcome) in [(None, AttemptOutcome::Released), (Some(Fault::Fail), AttemptOutcome::Unknown)] {
        let (fixture, queue, worker, told) = hanging();
        fixture.accepts(&fixture.event("evt_1")).await;
        if let Some(fault) = fault {
            queue.breaks(Verb::Release, fault);
        }
        let started = async {
            eventually("the attempt", async || fixture.kept("evt_1").await.state == EventState::Running).await;
        };
        assert_eq!(worker.grace(Duration::from_secs(5)).run(started).await.dropped, 1);
        let told = told.lock().expect("no panic").clone();
        assert!(matches!(told[..], [(1, told, _, None)] if told == outcome), "{fault:?}: {told:?}");
    }
}

/// The panic comes once the service is ready, and before it is called.
#[tokio::test(start_paused = true)]
async fn panic_before_the_call_uses_no_attempt_up_and_is_told_as_what_was_stored() {
    let fixture = Fixture::new();
    fixture.accepts(&fixture.event("evt_1")).await;
    let (told, queue) = (Told::default(), Faulty::new(fixture.inbox.clone()));
    queue.breaks_times(Verb::Start, Fault::Panic, 1);
    let retries = RetryPolicy::new().max_attempts(1).first_pause(Duration::ZERO);
    let worker = Worker::new(queue.clone(), fixture.handlers.clone()).retries(retries);
    assert_eq!(worker.on_attempt(noting(&told)).run_until_idle().await, 2);
    let reason = "a panic came before the handler was called".to_owned();
    let expected = [(1, AttemptOutcome::Retried, 0, Some(reason)), (2, AttemptOutcome::Completed, 0, None)];
    assert_eq!(*told.lock().expect("no panic"), expected);
    assert_eq!((queue.calls(Verb::Bury), fixture.handler.runs()), (0, 1));
}

#[tokio::test]
async fn hook_of_attempts_comes_first_and_may_panic() {
    let handler = async |_: WebhookEvent| Err::<(), _>(HandlerError::permanent("bad"));
    let fixture = Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer);
    fixture.accepts(&fixture.event("evt_1")).await;
    let told: Arc<Mutex<Vec<&'static str>>> = Arc::default();
    let (attempts, letters) = (told.clone(), told.clone());
    let worker = fixture
        .worker()
        .on_attempt(move |_| {
            attempts.lock().expect("no panic under the lock").push("attempt");
            panic!("asked to");
        })
        .on_dead_letter(move |_| letters.lock().expect("no panic under the lock").push("dead letter"));
    assert_eq!(worker.run_until_idle().await, 1);
    assert_eq!(*told.lock().expect("no panic under the lock"), ["attempt", "dead letter"]);
}
