//! Workers whose inbox fails, hangs, or loses its replies. Time is tokio's, and paused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tower_webhook::queue::EventState;
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{Drained, HandlerError, WebhookEvent, Worker};

use crate::inbox::fixture::Fixture;
use crate::support::faulty::{Fault, Faulty, Verb};

const LEASE: Duration = Duration::from_secs(3);

/// A worker on an inbox with faults, its runs, and the dead letters that it told of.
struct RunningWorker {
    fixture: Fixture,
    inbox: Faulty,
    runs: Arc<Mutex<usize>>,
    letters: Arc<Mutex<Vec<String>>>,
    stop: oneshot::Sender<()>,
    working: JoinHandle<Drained>,
}

impl RunningWorker {
    /// Gives every event up after `attempts`.
    fn start(attempts: u32, answer: fn(usize) -> Response) -> Self {
        let runs = Arc::new(Mutex::new(0));
        let counted = runs.clone();
        let handler = async move |_: WebhookEvent| {
            let run = {
                let mut runs = counted.lock().expect("no panic");
                *runs += 1;
                *runs
            };
            // Long enough that the lease's renewal is under way.
            tokio::time::sleep(Duration::from_millis(100)).await;
            answer(run)
        };
        let fixture = Fixture::handling(Router::new().route("/webhooks", post(handler)), |layer| layer);
        let (inbox, letters) = (Faulty::new(fixture.inbox.clone()), Arc::new(Mutex::new(Vec::new())));
        let told = letters.clone();
        let retries = RetryPolicy::new().max_attempts(attempts).first_pause(Duration::ZERO);
        let worker =
            Worker::new(inbox.clone(), fixture.handlers.clone()).retries(retries).lease(LEASE).expect("a lease");
        let worker = worker.on_dead_letter(move |letter| told.lock().expect("no panic").push(letter.reason.to_owned()));
        let (stop, stopped) = oneshot::channel::<()>();
        let working = tokio::spawn(worker.run(async { _ = stopped.await }));
        Self { fixture, inbox, runs, letters, stop, working }
    }

    async fn stop(self) -> (Fixture, usize, Vec<String>) {
        drop(self.stop);
        assert_eq!(self.working.await.expect("no panic").dropped, 0);
        let (runs, letters) = (*self.runs.lock().expect("no panic"), self.letters.lock().expect("no panic").clone());
        (self.fixture, runs, letters)
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn done(_: usize) -> Response {
    ().into_response()
}

fn permanent(_: usize) -> Response {
    HandlerError::permanent("no such account").into_response()
}

fn flaky(run: usize) -> Response {
    match run {
        1 => HandlerError::transient("flaky").into_response(),
        _ => ().into_response(),
    }
}

#[tokio::test(start_paused = true)]
async fn outage_is_waited_out() {
    let running = RunningWorker::start(3, done);
    running.inbox.breaks(Verb::Lease, Fault::Fail);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    seconds(60).await;
    assert_eq!(*running.runs.lock().expect("no panic"), 0);
    assert!(running.inbox.calls(Verb::Lease) < 200, "it does not spin");
    running.inbox.heal(Verb::Lease);
    seconds(5).await;
    let (fixture, runs, _) = running.stop().await;
    assert_eq!(runs, 1);
    fixture.is_in("evt_1", EventState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn completion_that_fails_is_asked_for_until_it_is_stored_and_the_event_not_run_again() {
    let running = RunningWorker::start(3, done);
    running.inbox.breaks(Verb::Complete, Fault::Fail);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    seconds(60).await;
    running.inbox.heal(Verb::Complete);
    seconds(10).await;
    let (fixture, runs, _) = running.stop().await;
    assert_eq!(runs, 1);
    fixture.is_in("evt_1", EventState::Completed).await;
}

#[tokio::test(start_paused = true)]
async fn burial_that_fails_is_told_once_and_when_it_is_stored() {
    for answer in [permanent, |_| HandlerError::transient("no such account").into_response()] {
        let running = RunningWorker::start(1, answer);
        running.inbox.breaks(Verb::Bury, Fault::Fail);
        running.fixture.accepts(&running.fixture.event("evt_1")).await;
        seconds(60).await;
        assert_eq!(*running.letters.lock().expect("no panic"), [""; 0], "nothing is dead yet");
        running.inbox.heal(Verb::Bury);
        seconds(10).await;
        let (fixture, runs, letters) = running.stop().await;
        assert_eq!((runs, letters), (1, vec!["no such account".to_owned()]));
        let kept = fixture.kept("evt_1").await;
        assert_eq!((kept.state, kept.summary.as_deref()), (EventState::Dead, Some("no such account")));
    }
}

/// Longer than the lease, so that the event is leased again before the store was told.
#[tokio::test(start_paused = true)]
async fn permanent_failure_stays_one_however_long_the_store_is_away() {
    let running = RunningWorker::start(3, permanent);
    for verb in [Verb::Bury, Verb::Renew] {
        running.inbox.breaks(verb, Fault::Fail);
    }
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    seconds(60).await;
    for verb in [Verb::Bury, Verb::Renew] {
        running.inbox.heal(verb);
    }
    seconds(20).await;
    let (fixture, runs, letters) = running.stop().await;
    assert_eq!((runs, letters.len()), (1, 1));
    fixture.is_in("evt_1", EventState::Dead).await;
}

#[tokio::test(start_paused = true)]
async fn reason_of_a_failed_attempt_is_kept_though_the_store_was_away() {
    let running = RunningWorker::start(3, flaky);
    running.inbox.breaks(Verb::Retry, Fault::Fail);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    seconds(30).await;
    running.inbox.heal(Verb::Retry);
    seconds(20).await;
    let (fixture, runs, _) = running.stop().await;
    assert_eq!(runs, 2);
    let kept = fixture.kept("evt_1").await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    assert_eq!((kept.state, reasons), (EventState::Completed, vec!["flaky"]));
}

#[tokio::test(start_paused = true)]
async fn lost_reply_to_a_retry_is_no_second_failure() {
    let running = RunningWorker::start(3, flaky);
    running.inbox.breaks_times(Verb::Retry, Fault::LoseReply, 1);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    seconds(20).await;
    let (fixture, _, _) = running.stop().await;
    assert_eq!(fixture.kept("evt_1").await.failures.len(), 1);
}

/// A shutdown in the middle of a lease.
#[tokio::test(start_paused = true)]
async fn what_was_leased_during_the_shutdown_is_waited_for() {
    let running = RunningWorker::start(3, done);
    tokio::task::yield_now().await;
    running.inbox.breaks(Verb::Lease, Fault::HoldReply);
    let leases = running.inbox.calls(Verb::Lease);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    running.inbox.called(Verb::Lease, leases + 1).await;
    drop(running.stop);
    running.inbox.heal(Verb::Lease);
    assert_eq!(running.working.await.expect("no panic").dropped, 0);
    assert_eq!(*running.runs.lock().expect("no panic"), 1);
    running.fixture.is_in("evt_1", EventState::Completed).await;
}

/// 200 only for what is kept.
#[tokio::test(start_paused = true)]
async fn failed_acceptance_is_a_503() {
    let inbox = Faulty::new(tower_webhook::store::MemoryStore::new());
    let clock = tower_webhook::testing::ManualClock::at_unix(crate::support::NOW);
    let fixture = Fixture::new();
    let layer = tower_webhook::WebhookLayer::inbox(crate::support::scheme(), inbox.clone()).clock(clock);
    let fixture = Fixture { app: fixture.handlers.clone().layer(layer), inbox: inbox.inner.clone(), ..fixture };
    for fault in [Fault::Fail, Fault::Hang] {
        inbox.breaks(Verb::Accept, fault);
        assert_eq!(fixture.deliver("evt_1").await.status, 503, "{fault:?}");
        inbox.heal(Verb::Accept);
    }
    inbox.breaks(Verb::Accept, Fault::LoseReply);
    assert_eq!(fixture.deliver("evt_2").await.status, 503);
    inbox.heal(Verb::Accept);
    fixture.is_in("evt_2", EventState::Waiting).await;
    assert_eq!(fixture.deliver("evt_2").await.status, 200, "the sender's retry finds it");
    assert_eq!(inbox.calls(Verb::Release), 0, "nothing is taken back that may be run");
}

#[tokio::test(start_paused = true)]
async fn event_whose_only_lease_got_lost_is_run_before_it_dies() {
    let running = RunningWorker::start(1, done);
    running.inbox.breaks(Verb::Lease, Fault::LoseReply);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    while running.fixture.kept("evt_1").await.attempts < 3 {
        seconds(1).await;
    }
    running.inbox.heal(Verb::Lease);
    seconds(30).await;
    let (fixture, runs, letters) = running.stop().await;
    assert_eq!((runs, letters.len()), (1, 0));
    fixture.is_in("evt_1", EventState::Completed).await;
    assert_eq!(fixture.kept("evt_1").await.attempts, 4, "the lost leases count, but not as the last attempt");
}

/// The inbox has noted the start down, and the worker cannot know: the lease would lapse, and the next one would give the event up.
#[tokio::test(start_paused = true)]
async fn event_whose_start_got_lost_with_everything_else_is_run_before_it_dies() {
    for fault in [Fault::LoseReply, Fault::HoldReply] {
        let running = RunningWorker::start(1, done);
        running.inbox.breaks(Verb::Start, fault);
        for verb in [Verb::Release, Verb::Renew] {
            running.inbox.breaks(verb, Fault::Fail);
        }
        running.fixture.accepts(&running.fixture.event("evt_1")).await;
        seconds(30).await;
        for verb in [Verb::Start, Verb::Release, Verb::Renew] {
            running.inbox.heal(verb);
        }
        seconds(10).await;
        let (fixture, runs, letters) = running.stop().await;
        assert_eq!((runs, letters.len()), (1, 0), "{fault:?}");
        fixture.is_in("evt_1", EventState::Completed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn last_attempt_waits_for_its_start_to_be_noted_down() {
    for fault in [Fault::Fail, Fault::LoseReply, Fault::Hang] {
        let running = RunningWorker::start(1, done);
        running.inbox.breaks(Verb::Start, fault);
        running.fixture.accepts(&running.fixture.event("evt_1")).await;
        running.inbox.called(Verb::Start, 1).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(*running.runs.lock().expect("no panic"), 0, "{fault:?}");
        running.inbox.heal(Verb::Start);
        seconds(30).await;
        let (fixture, runs, letters) = running.stop().await;
        assert_eq!((runs, letters.len()), (1, 0), "{fault:?}");
        fixture.is_in("evt_1", EventState::Completed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_that_are_not_the_last_cost_no_start() {
    let running = RunningWorker::start(2, flaky);
    running.fixture.accepts(&running.fixture.event("evt_1")).await;
    seconds(30).await;
    assert_eq!(running.inbox.calls(Verb::Start), 1, "before the second of two");
    assert_eq!(running.stop().await.1, 2);
}
