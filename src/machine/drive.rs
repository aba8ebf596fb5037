use std::borrow::Cow;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::{Admission, Gate, Phase};
use super::claiming::Claiming;
use super::deadline::unless;
use super::drain::DrainHandle;
use super::pending::PendingCompletions;
use super::running::Run;
use super::waiters::Waiters;
use super::waiting::Waited;
use super::{BodyChange, Claimant, Settled, Terms, within};
use crate::EventKey;
use crate::claimant::Stage;
use crate::enlist::Lent;
use crate::rejection::{Rejection, RejectionKind};
use crate::store::{
    Claim, Completion,
    erased::{ErasedStore, Setback},
};

/// What all deliveries of one layer share.
pub(crate) struct Machine {
    pub(super) store: Box<dyn ErasedStore>,
    pub(super) gate: Arc<Gate>,
    pub(super) waiters: Waiters,
    pub(super) pending: PendingCompletions,
}

/// What the machine drives once it holds the claim. What comes of it stays with the work: it may be large, and is nothing
/// to the machine.
pub(crate) trait Work: Send {
    /// Ready when the work can start; `Err` when it never can.
    fn ready(&mut self) -> impl Future<Output = Result<(), NotReady>> + Send;

    /// Gives back what readiness has reserved.
    fn unready(&mut self);

    /// Does the work and says how it is to be settled. Called at most once.
    fn run(&mut self) -> impl Future<Output = Verdict> + Send;
}

/// The work can never start.
pub(crate) struct NotReady;

/// How work is to be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not to be run again.
    Complete(Record),
    /// To be run again, when the sender delivers again or the inbox sees fit. Without a setback it is as if it had not been tried.
    Release(Option<Setback>),
}

/// What is to be remembered of work that is done, or given up for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) failed: bool,
    pub(crate) summary: Cow<'static, str>,
}

impl Record {
    pub(super) fn completion(&self, retention: Duration) -> Completion<'_> {
        match self.failed {
            true => Completion::failed(&self.summary, retention),
            false => Completion::succeeded(&self.summary, retention),
        }
    }
}

/// How a delivery ended.
pub(crate) enum Ended {
    /// The work ran to its end.
    Ran(Settled),
    /// The work panicked, and this became of its claim.
    Panicked(Settled),
    /// The work could not start; this became of its claim, if it had one.
    NotReady(Option<Settled>),
    /// Not run here: it is durably queued.
    Accepted,
    /// Completed or queued before: nothing to do.
    Duplicate,
    /// Not run.
    Refused(Rejection),
}

impl Ended {
    pub(super) fn refused(kind: RejectionKind) -> Self {
        Self::Refused(kind.into())
    }
}

impl Machine {
    pub(crate) fn new(store: impl ErasedStore) -> Self {
        Self {
            store: Box::new(store),
            gate: Arc::new(Gate::new()),
            waiters: Waiters::default(),
            pending: PendingCompletions::default(),
        }
    }

    pub(crate) fn drain_handle(&self) -> DrainHandle {
        DrainHandle(self.gate.clone())
    }

    /// One delivery: admitted, claimed, run, settled.
    pub(crate) async fn drive(
        self: &Arc<Self>,
        terms: &Terms,
        claimant: &Arc<Claimant>,
        work: &mut impl Work,
    ) -> Ended {
        let admission = match self.gate.enter(terms.max_running) {
            Ok(admission) => admission,
            Err(refused) => return Ended::refused(refused),
        };
        // Out of the `match` first: awaited inside of it, the future would hold it twice.
        let mut claimed = match self.claim(terms, claimant, admission, work).await {
            Ok(claimed) => claimed,
            Err(ended) => return ended,
        };
        claimed.finish(work).await
    }

    /// One delivery that is to be run later: admitted, let in by `room`, and its event accepted with the claim.
    pub(crate) async fn accept(
        self: &Arc<Self>,
        terms: &Terms,
        claimant: &Arc<Claimant>,
        room: impl Future<Output = Result<(), RejectionKind>>,
    ) -> Ended {
        // Admitted first: whoever asks the store for room is counted, and the drain waits for them.
        let admission = match self.gate.enter(terms.max_running) {
            Ok(admission) => admission,
            Err(refused) => return Ended::refused(refused),
        };
        let began = Instant::now();
        if let Err(refused) = room.await {
            return Ended::refused(refused);
        }
        // One deadline for both questions: a store that is slow is not given twice the time.
        let left = terms.claim_deadline.saturating_sub(began.elapsed());
        let terms = &Terms { claim_deadline: left, ..terms.clone() };
        match self.claim(terms, claimant, admission, &mut Nothing).await {
            Ok(_) => {
                claimant.enter(Stage::Outside);
                Ended::Accepted
            }
            Err(ended) => ended,
        }
    }

    /// An event whose claim was leased at `since`, for this attempt: run, settled. The caller has it [counted](Self::hold).
    pub(crate) async fn resume(
        self: &Arc<Self>,
        terms: &Terms,
        claimant: &Arc<Claimant>,
        (since, attempt): (Instant, u32),
        work: &mut impl Work,
    ) -> Ended {
        claimant.enter(Stage::Engaged);
        self.took(terms, claimant, Some(attempt));
        Run { machine: self, terms, claimant, admission: None, since }.finish(work).await
    }

    /// What came of the work of `key`, if it is done here and the store could not be told of it yet.
    pub(crate) fn pending_record(&self, key: &EventKey) -> Option<Record> {
        self.pending.record(key)
    }

    /// Counts something that the drain is to wait for.
    pub(crate) fn hold(&self) -> Admission {
        self.gate.hold()
    }

    /// Readiness, the replay guard, and the claim, in this order: a claim must not age while its work queues.
    async fn claim<'a>(
        self: &'a Arc<Self>,
        terms: &'a Terms,
        claimant: &'a Arc<Claimant>,
        admission: Admission,
        work: &mut impl Work,
    ) -> Result<Run<'a>, Ended> {
        self.ready(terms, work).await?;
        if let Some(guard) = &claimant.guard {
            // Boxed, as below.
            Box::pin(self.pass_guard(terms, claimant, guard)).await?;
        }
        let since = Instant::now();
        match Claiming::new(self, terms, claimant).ask().await {
            Some(Claim::Fresh { attempt }) => {
                self.took(terms, claimant, attempt);
                Ok(Run { machine: self, terms, claimant, admission: Some(admission), since })
            }
            Some(Claim::InFlight { same_body }) => {
                body_changed(terms, claimant, same_body)?;
                // Waiting must not occupy a place that other events could run in.
                work.unready();
                drop(admission);
                // Boxed: it is large and rare, and would make every delivery's future as large.
                Box::pin(self.take_over(terms, claimant)).await
            }
            Some(Claim::Accepted { same_body } | Claim::Completed { same_body }) => {
                body_changed(terms, claimant, same_body)?;
                Err(Ended::Duplicate)
            }
            None => Err(Ended::refused(RejectionKind::StoreUnavailable)),
        }
    }

    /// Waits for the first delivery, and takes its claim over if that is what comes of it.
    async fn take_over<'a>(
        self: &'a Arc<Self>,
        terms: &'a Terms,
        claimant: &'a Arc<Claimant>,
    ) -> Result<Run<'a>, Ended> {
        let (attempt, since) = match self.wait(terms, claimant).await {
            Waited::TookOver { attempt, since } => (attempt, since),
            Waited::Completed => return Err(Ended::Duplicate),
            Waited::Refused(kind) => return Err(Ended::refused(kind)),
        };
        self.took(terms, claimant, attempt);
        match self.gate.enter(terms.max_running) {
            Ok(admission) => Ok(Run { machine: self, terms, claimant, admission: Some(admission), since }),
            Err(full) => {
                self.release_in_background(terms, claimant);
                Err(Ended::refused(full))
            }
        }
    }

    /// The claim is this delivery's.
    fn took(&self, terms: &Terms, claimant: &Claimant, attempt: Option<u32>) {
        let lent = self.store_of(claimant).enlistment().map(|enlistment| Lent::new(enlistment, terms.retention));
        claimant.took(attempt, lent);
    }

    /// Waits for the work to be ready, though not for ever, nor beyond the drain's deadline.
    async fn ready(&self, terms: &Terms, work: &mut impl Work) -> Result<(), Ended> {
        let ready = pin!(async { work.ready().await.map_err(|NotReady| Ended::NotReady(None)) });
        unless(ready, || async {
            let aborted = within(terms.ready_wait, self.gate.reached(Phase::Aborting)).await;
            let why = if aborted.is_some() { RejectionKind::Draining } else { RejectionKind::Busy };
            Err(Ended::refused(why))
        })
        .await
    }
}

/// The work of an event that is only accepted.
struct Nothing;

impl Work for Nothing {
    async fn ready(&mut self) -> Result<(), NotReady> {
        Ok(())
    }

    fn unready(&mut self) {}

    async fn run(&mut self) -> Verdict {
        Verdict::Release(None)
    }
}

/// One id under two bodies is told to the operator, and refused where the policy says so.
fn body_changed(terms: &Terms, claimant: &Claimant, same_body: bool) -> Result<(), Ended> {
    if same_body {
        return Ok(());
    }
    claimant.found_other_body();
    match terms.body_change {
        BodyChange::Duplicate => Ok(()),
        BodyChange::Refuse => Err(Ended::refused(RejectionKind::BodyChanged)),
    }
}
