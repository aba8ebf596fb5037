//! The story of one delivery: admitted, claimed, run, settled.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::{Admission, Phase};
use super::claim::{Claiming, Waited, wait};
use super::claim_state::{ClaimState, Stage};
use super::context::{BodyChange, Context, Machine, Terms};
use super::replay_guard::{self, ReplayGuard};
use super::run::{NotReady, Work, Worked, run};
use super::settle::{Settled, release_in_background, settle};
use super::timing::{unless, within};
use super::verdict::Verdict;
use crate::rejection::{Rejection, RejectionKind};
use crate::store::Claim;

/// How a delivery ended.
pub(crate) enum Ended {
    /// The work ran to its end.
    Ran(Settled),
    /// The work panicked. Says how its claim was settled.
    Panicked(Settled),
    /// The work could not start. Says how its claim was settled, if it had one.
    NotReady(Option<Settled>),
    /// The event is durably queued, for a worker to run.
    Accepted,
    /// Completed or queued before: nothing to do.
    Duplicate,
    /// The work did not begin, or was dropped half-way. Says how its claim was settled.
    Dropped { why: RejectionKind, settled: Settled },
    /// The delivery was refused: it held no claim, or gave back the one that it had taken over.
    Refused(Rejection),
}

impl From<RejectionKind> for Ended {
    fn from(kind: RejectionKind) -> Self {
        Self::Refused(kind.into())
    }
}

/// A claim that is held, and the admission to run its work.
struct Held {
    /// None if the caller counts the work itself.
    admission: Option<Admission>,
    /// When the claim was asked for: its lease began then, or later.
    since: Instant,
}

impl Machine {
    /// One delivery that runs while the sender waits: admitted, claimed, run, settled.
    pub(crate) async fn drive(
        self: &Arc<Self>,
        terms: &Terms,
        claim: &Arc<ClaimState>,
        guard: Option<&ReplayGuard>,
        work: &mut impl Work,
    ) -> Ended {
        let cx = &Context { machine: self, terms, claim };
        let admission = match self.gate.enter(terms.max_running) {
            Ok(admission) => admission,
            Err(refused) => return refused.into(),
        };
        // The work is awaited after this `match`: in one of its arms, it would make the future larger.
        let held = match claim_event(cx, admission, guard, terms.claim_deadline, work).await {
            Ok(held) => held,
            Err(ended) => return ended,
        };
        run_and_settle(cx, held, work).await
    }

    /// One delivery that is to be run later: admitted, let in by `room`, and enqueued by its claim.
    pub(crate) async fn enqueue(
        self: &Arc<Self>,
        terms: &Terms,
        claim: &Arc<ClaimState>,
        guard: Option<&ReplayGuard>,
        room: impl Future<Output = Result<(), RejectionKind>>,
    ) -> Ended {
        // Admitted first: a delivery that asks the store for room is counted, and the drain waits for it.
        let admission = match self.gate.enter(terms.max_running) {
            Ok(admission) => admission,
            Err(refused) => return refused.into(),
        };
        let began = Instant::now();
        if let Err(refused) = room.await {
            return refused.into();
        }
        // One deadline for the room and the first claim: a slow store is not given twice the time. The questions of a
        // wait have a deadline each.
        let left = terms.claim_deadline.saturating_sub(began.elapsed());
        match claim_event(&Context { machine: self, terms, claim }, admission, guard, left, &mut Nothing).await {
            Ok(_) => {
                claim.set_stage(Stage::NothingToDo);
                Ended::Accepted
            }
            Err(ended) => ended,
        }
    }

    /// One event that a worker leased at `since`, for this attempt: run, settled. The worker [counts](Self::hold) it.
    pub(crate) async fn resume(
        self: &Arc<Self>,
        terms: &Terms,
        claim: &Arc<ClaimState>,
        (since, attempt): (Instant, u32),
        work: &mut impl Work,
    ) -> Ended {
        claim.set_stage(Stage::Unfinished);
        claim.mark_held(Some(attempt), terms.retention);
        run_and_settle(&Context { machine: self, terms, claim }, Held { admission: None, since }, work).await
    }
}

/// Readiness, the replay guard, and the claim, in this order: a claim must not age while its work queues. The store has
/// until `deadline` to answer the first claim.
async fn claim_event(
    cx: &Context<'_>,
    admission: Admission,
    guard: Option<&ReplayGuard>,
    deadline: Duration,
    work: &mut impl Work,
) -> Result<Held, Ended> {
    until_ready(cx, work).await?;
    if let Some(guard) = guard {
        // Boxed, as below.
        Box::pin(replay_guard::pass(cx, guard)).await?;
    }
    let since = Instant::now();
    match Claiming::new(cx).ask(deadline).await {
        Some(Claim::Fresh { attempt }) => {
            cx.claim.mark_held(attempt, cx.terms.retention);
            Ok(Held { admission: Some(admission), since })
        }
        Some(Claim::InFlight { same_body }) => {
            check_body(cx, same_body)?;
            // A delivery that waits must not use capacity that other events could run with.
            work.unready();
            drop(admission);
            // Boxed: it is large and rare, and would make every delivery's future as large.
            Box::pin(wait_and_take_over(cx)).await
        }
        Some(Claim::Accepted { same_body } | Claim::Completed { same_body }) => {
            check_body(cx, same_body)?;
            Err(Ended::Duplicate)
        }
        None => Err(RejectionKind::StoreUnavailable.into()),
    }
}

/// Waits for the first delivery, and takes its claim over if that fell free.
async fn wait_and_take_over(cx: &Context<'_>) -> Result<Held, Ended> {
    let (attempt, since) = match wait(cx).await {
        Waited::TookOver { attempt, since } => (attempt, since),
        Waited::Completed => return Err(Ended::Duplicate),
        Waited::Refused(kind) => return Err(kind.into()),
    };
    cx.claim.mark_held(attempt, cx.terms.retention);
    match cx.machine.gate.enter(cx.terms.max_running) {
        Ok(admission) => Ok(Held { admission: Some(admission), since }),
        Err(full) => {
            release_in_background(cx);
            Err(full.into())
        }
    }
}

/// Runs the work, and settles the claim however the work ends.
async fn run_and_settle(cx: &Context<'_>, mut held: Held, work: &mut impl Work) -> Ended {
    let unsettled = Unsettled(cx);
    let worked = run(cx, held.since, work).await;
    let (worked, verdict) = told(work, worked);
    cx.claim.set_stage(Stage::Settling);
    unsettled.settling();
    let settled = settle(cx, &mut held.admission, verdict).await;
    match worked {
        Worked::Done => Ended::Ran(settled),
        Worked::NotReady => Ended::NotReady(Some(settled)),
        Worked::Panicked => Ended::Panicked(settled),
        Worked::Dropped(why) => Ended::Dropped { why, settled },
    }
}

/// Tells the work how it is going to be settled. A function, because a verdict that is borrowed in a future is kept there
/// twice.
fn told(work: &mut impl Work, (worked, verdict): (Worked, Verdict)) -> (Worked, Verdict) {
    work.settles(&verdict);
    (worked, verdict)
}

/// Waits for the work to be ready, though not for ever, nor beyond the drain's deadline.
async fn until_ready(cx: &Context<'_>, work: &mut impl Work) -> Result<(), Ended> {
    let ready = pin!(async { work.ready().await.map_err(|NotReady| Ended::NotReady(None)) });
    unless(ready, || async {
        let aborted = within(cx.terms.ready_wait, cx.machine.gate.reached(Phase::Aborting)).await;
        Err(if aborted.is_some() { RejectionKind::Draining } else { RejectionKind::Busy }.into())
    })
    .await
}

/// Tells the operator of one id under two bodies, and refuses it where the policy says so.
fn check_body(cx: &Context<'_>, same_body: bool) -> Result<(), Ended> {
    if same_body {
        return Ok(());
    }
    cx.claim.mark_body_changed();
    match cx.terms.body_change {
        BodyChange::Duplicate => Ok(()),
        BodyChange::Refuse => Err(RejectionKind::BodyChanged.into()),
    }
}

/// Work that is not settled yet. Dropped in that state, it releases its claim in the background.
struct Unsettled<'a>(&'a Context<'a>);

impl Unsettled<'_> {
    /// From here on the settlement is under way, and is the one to finish.
    fn settling(self) {
        std::mem::forget(self);
    }
}

impl Drop for Unsettled<'_> {
    fn drop(&mut self) {
        release_in_background(self.0);
    }
}

/// The work of an event that is only enqueued.
struct Nothing;

impl Work for Nothing {
    async fn ready(&mut self) -> Result<(), NotReady> {
        Ok(())
    }

    fn unready(&mut self) {}

    async fn run(&mut self, _: &AtomicBool) -> Verdict {
        Verdict::Release(None)
    }
}
