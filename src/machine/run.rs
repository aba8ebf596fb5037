//! Running the work of a claim that is held, and keeping its lease alive meanwhile.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::admission::Phase;
use super::claim_state::ClaimState;
use super::context::Context;
use super::timing::{ask, either, unless, within};
use super::verdict::{RetryReason, Verdict};
use crate::rejection::RejectionKind;
use crate::store::Hold;
use crate::telemetry::{self, DeliverySpan};

pub(crate) const PANICKED: &str = "the handler panicked";
const PANICKED_BEFORE_THE_CALL: &str = "a panic came before the handler was called";
const NEVER_READY: &str = "the inner service refused to become ready";
pub(crate) const SERVICE_FAILED: &str = "the inner service failed";

/// A lease is renewed after a third of its time.
const RENEWALS_PER_LEASE: u32 = 3;

/// A renewal that failed is repeated after a quarter of that pause. The two thirds of the lease that are left by then
/// have room for eight such pauses.
const RETRIES_PER_LEASE: u32 = 4 * RENEWALS_PER_LEASE;

/// The work that the machine runs once it holds the claim. The work keeps its own result: the machine does not need it.
pub(crate) trait Work: Send {
    /// Ready when the work can start; `Err` when it never can.
    fn ready(&mut self) -> impl Future<Output = Result<(), NotReady>> + Send;

    /// Returns the capacity that readiness has reserved.
    fn unready(&mut self);

    /// Does the work and says how it is to be settled. Called at most once. The work sets `called` when it calls the
    /// handler: before that, a panic does not use the attempt up.
    fn run(&mut self, called: &AtomicBool) -> impl Future<Output = Verdict> + Send;

    /// Told how the work is to be settled, however it ended.
    fn settles(&mut self, _: &Verdict) {}
}

/// The work can never start.
pub(crate) struct NotReady;

/// How the work itself ended.
pub(super) enum Worked {
    Done,
    NotReady,
    Panicked,
    /// The work did not begin or was dropped half-way: because of the drain's deadline, a lost claim, or a service that
    /// was not ready.
    Dropped(RejectionKind),
}

/// Runs the work and catches its panics. If the work is not done at its first poll, the machine starts to renew the
/// lease and listens for reasons to stop half-way. `since` is when the claim was asked for: the lease began then, or
/// later.
pub(super) async fn run(cx: &Context<'_>, since: Instant, work: &mut impl Work) -> (Worked, Verdict) {
    // The claim may have been answered after the drain's deadline.
    if cx.machine.gate.has_reached(Phase::Aborting) {
        return (Worked::Dropped(RejectionKind::Draining), Verdict::Release(None));
    }
    let called = AtomicBool::new(false);
    let mut working = pin!(async {
        // Ready already, unless this duplicate gave its readiness back while it waited (`unready`).
        match within(cx.terms.ready_wait, work.ready()).await {
            Some(Ok(())) => (Worked::Done, work.run(&called).await),
            Some(Err(NotReady)) => {
                (Worked::NotReady, Verdict::Release(Some(RetryReason::before_the_call(NEVER_READY))))
            }
            None => (Worked::Dropped(RejectionKind::Busy), Verdict::Release(None)),
        }
    });
    let span = DeliverySpan::new(&cx.claim.key, cx.claim.event_type.as_deref());
    let caught = pin!(poll_fn(|task| {
        let polled = catch_unwind(AssertUnwindSafe(|| span.in_scope(|| working.as_mut().poll(task))));
        polled.unwrap_or_else(|_| {
            let why = match called.load(Ordering::Relaxed) {
                true => RetryReason::new(PANICKED),
                false => RetryReason::before_the_call(PANICKED_BEFORE_THE_CALL),
            };
            Poll::Ready((Worked::Panicked, Verdict::Release(Some(why))))
        })
    }));
    let renewal = OnceLock::new();
    let worked = unless(caught, || async {
        let begun = || Renewal::start(cx, since + cx.terms.lease / RENEWALS_PER_LEASE);
        (Worked::Dropped(until_stopped(cx, renewal.get_or_init(begun)).await), Verdict::Release(None))
    })
    .await;
    let asking = renewal.into_inner().and_then(|renewal| {
        let asking = renewal.stop();
        note_if_late(cx, since);
        asking
    });
    match asking {
        // Boxed: few handlers run for so long, and every delivery's future would be as large.
        Some(renewal) => {
            Box::pin(async move {
                renewal.stopped().await;
                worked
            })
            .await
        }
        None => worked,
    }
}

/// Notes if the work that began at `since` took longer than the sender waits.
fn note_if_late(cx: &Context<'_>, since: Instant) {
    if let Some(waits) = cx.terms.sender_timeout {
        let took = since.elapsed();
        if took > waits {
            cx.claim.mark_late(took);
        }
    }
}

/// Waits for a reason to drop the work half-way.
async fn until_stopped(cx: &Context<'_>, renewal: &Renewal) -> RejectionKind {
    let aborted = async {
        cx.machine.gate.reached(Phase::Aborting).await;
        RejectionKind::Draining
    };
    let lost = async {
        renewal.lost().await;
        if !cx.terms.drop_when_lost {
            std::future::pending::<()>().await;
        }
        RejectionKind::ClaimLost
    };
    either(aborted, lost).await
}

/// Keeps a lease alive from a task of its own: a handler that blocks its thread must not lose it. Stops when dropped.
pub(super) struct Renewal {
    task: JoinHandle<()>,
    first: Instant,
    lost: watch::Receiver<bool>,
}

impl Renewal {
    /// Renews from `first` on; the lease must last until then. Reports it if the claim is lost.
    fn start(cx: &Context<'_>, first: Instant) -> Self {
        Self::spawn(cx, first, |claim| {
            claim.mark_lost();
            telemetry::claim_lost(&claim.key);
        })
    }

    /// Renews from now on, for a settlement that is repeated. A refused renewal is not reported: the settlement may have
    /// taken effect, and its reply be late.
    pub(super) fn while_settling(cx: &Context<'_>) -> Self {
        Self::spawn(cx, Instant::now(), |_| ())
    }

    fn spawn(cx: &Context<'_>, first: Instant, note_loss: fn(&ClaimState)) -> Self {
        let (lose, lost) = watch::channel(false);
        let detached = cx.detached();
        let task = tokio::spawn(async move {
            let cx = &detached.context();
            keep(cx, first).await;
            note_loss(cx.claim);
            let _ = lose.send(true);
        });
        Self { task, first, lost }
    }

    /// Stops. Returns itself if one of its requests may be under way: a renewal after the settlement could bring the
    /// claim back, so [`stopped`](Self::stopped) is to be awaited first.
    fn stop(self) -> Option<Self> {
        self.task.abort();
        // After the abort: before `first` the renewal has only slept, and the abort keeps it from waking up.
        (Instant::now() >= self.first).then_some(self)
    }

    /// Waits until no request of a renewal that was told to stop is under way.
    async fn stopped(mut self) {
        let _ = (&mut self.task).await;
    }

    /// Waits until the claim is no longer held. Never returns if the renewal is dropped first.
    pub(super) async fn lost(&self) {
        if self.lost.clone().wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews at a third of the lease until the store refuses, or cannot be asked until the lease would have ended.
async fn keep(cx: &Context<'_>, first: Instant) {
    let (lease, deadline) = (cx.terms.lease, cx.terms.claim_deadline);
    let mut next = first;
    let mut ends = first + lease * 2 / 3;
    let mut asked_before = false;
    loop {
        tokio::time::sleep_until(next.min(ends)).await;
        let _turn = match cx.claim.enlisting() {
            Some(state) => Some(state.renewable().await),
            None => None,
        };
        let asked = Instant::now();
        let left = ends.saturating_duration_since(asked);
        // Once even when it is late, because the handler kept the thread: the store renews a lease that no other token
        // took over.
        if left.is_zero() && asked_before {
            return;
        }
        asked_before = true;
        let request = cx.request();
        let answer = cx.ledger().renew(&request);
        let deadline = if left.is_zero() { deadline } else { deadline.min(left) };
        match ask("renew", &cx.claim.key, deadline, answer).await {
            Some(Hold::Held) => {
                (next, ends, asked_before) = (asked + lease / RENEWALS_PER_LEASE, asked + lease, false);
                continue;
            }
            Some(Hold::Lost) if !cx.claim.is_enlisted() => return,
            // Enlisted while it was asked: the handler's own transaction may have completed the claim.
            Some(Hold::Lost) | None => {}
        }
        next = Instant::now() + lease / RETRIES_PER_LEASE;
    }
}
