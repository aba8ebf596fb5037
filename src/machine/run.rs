//! Running the work of a claim that is held.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use tokio::time::Instant;

use super::admission::Phase;
use super::context::Context;
use super::renewal::Renewal;
use super::timing::{either, unless, within};
use super::verdict::{RetryReason, Verdict};
use crate::rejection::RejectionKind;

const PANICKED: RetryReason = RetryReason::new("the handler panicked");
const NOT_READY: RetryReason = RetryReason::before_the_call("the inner service refused to become ready");
const PANICKED_NOT_READY: RetryReason = RetryReason::before_the_call("the inner service panicked before it was ready");

/// The work that the machine runs once it holds the claim. The work keeps its own result: the machine does not need it.
pub(crate) trait Work: Send {
    /// Ready when the work can start; `Err` when it never can.
    fn ready(&mut self) -> impl Future<Output = Result<(), NotReady>> + Send;

    /// Returns the capacity that readiness has reserved.
    fn unready(&mut self);

    /// Does the work and says how it is to be settled. Called at most once.
    fn run(&mut self) -> impl Future<Output = Verdict> + Send;
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

/// Polls the work with panics caught. The first time that it is pending, the lease's renewal is started and the reasons
/// to stop half-way are listened to; work that never is costs neither. The claim was asked for at `since`: its lease
/// began then, or later.
pub(super) async fn run(cx: Context<'_>, since: Instant, work: &mut impl Work) -> (Worked, Verdict) {
    // The claim may have been answered after the drain's deadline.
    if cx.machine.gate.is_at(Phase::Aborting) {
        return (Worked::Dropped(RejectionKind::Draining), Verdict::Release(None));
    }
    let is_ready = AtomicBool::new(false);
    let mut working = pin!(async {
        // Ready already, unless the claim was taken over after waiting without a place.
        match within(cx.terms.ready_wait, work.ready()).await {
            Some(Ok(())) => {
                is_ready.store(true, Ordering::Relaxed);
                (Worked::Done, work.run().await)
            }
            Some(Err(NotReady)) => (Worked::NotReady, Verdict::Release(Some(NOT_READY))),
            None => (Worked::Dropped(RejectionKind::Busy), Verdict::Release(None)),
        }
    });
    let caught = pin!(poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| working.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| {
            let why = if is_ready.load(Ordering::Relaxed) { PANICKED } else { PANICKED_NOT_READY };
            Poll::Ready((Worked::Panicked, Verdict::Release(Some(why))))
        })
    }));
    let renewal = OnceLock::new();
    let worked = unless(caught, || async {
        let begun = || Renewal::start(cx, since + cx.terms.lease / 3);
        (Worked::Dropped(until_stopped(cx, renewal.get_or_init(begun)).await), Verdict::Release(None))
    })
    .await;
    if let Some(renewal) = renewal.into_inner() {
        renewal.end().await;
    }
    worked
}

/// Waits for a reason to drop the work half-way.
async fn until_stopped(cx: Context<'_>, renewal: &Renewal) -> RejectionKind {
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
