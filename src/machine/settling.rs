use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::{Admission, Phase};
use super::asking::ask;
use super::backoff::Backoff;
use super::deadline::{either, unless};
use super::detach::in_background;
use super::renewal::Renewal;
use super::running::Run;
use super::waiters::Ending;
use super::{Claimant, Machine, Record, Terms, Verdict};
use crate::claimant::Stage;
use crate::store::erased::{Answer, Setback};
use crate::store::{ClaimRequest, Hold};
use crate::telemetry;

const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// A store that is away for longer than this is not waited for: the operator is told that the event may run again.
const GIVE_UP_AFTER: Duration = Duration::from_secs(3600);

/// What the store says of the claim, now that the work has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    Completed,
    /// The work is done; the store cannot be told, and is asked again in the background.
    CompletionPending,
    /// Completed as failed for good.
    Failed,
    /// Given back; what the store said to that, if it could be asked.
    Released(Option<Hold>),
    /// The handler answered as if it had committed the completion, and had not: released.
    NotCommitted,
    /// The store cannot say what became of the claim.
    Unknown,
    /// Another delivery took the claim over: what this one did is not the event's outcome.
    Lost,
}

impl Run<'_> {
    /// Completes or releases the claim.
    pub(super) async fn settle(&mut self, verdict: &Verdict) -> Settled {
        if self.claimant.is_enlisted() {
            // Boxed: it is large, few handlers enlist, and every delivery's future would be as large.
            return Box::pin(self.machine.settle_enlisted(self.terms, self.claimant, verdict)).await;
        }
        match verdict {
            Verdict::Complete(record) => self.complete(record).await,
            Verdict::Release(setback) => self.set_back(setback.as_ref()).await,
        }
    }

    async fn complete(&mut self, record: &Record) -> Settled {
        let Self { machine, terms, claimant, .. } = *self;
        let completed = if record.failed { Settled::Failed } else { Settled::Completed };
        let hold = machine.complete_first(terms, claimant, record).await;
        if hold != Some(Hold::Lost) {
            // Though the store may not have been told, the work is done: those who wait for it may be.
            machine.waiters.ended(&claimant.key, Ending::Completed);
        }
        let hold = match hold {
            Some(hold) => Some(hold),
            None => {
                let retry = Retry::new(self, Verdict::Complete(record.clone()));
                if !terms.settle_in_place {
                    tokio::spawn(async move { retry.until_settled().await });
                    return Settled::CompletionPending;
                }
                // Boxed: it is large and rare.
                Box::pin(retry.until_settled()).await
            }
        };
        match hold {
            Some(Hold::Held) => completed,
            Some(Hold::Lost) => {
                claimant.lost();
                Settled::Lost
            }
            None => Settled::Unknown,
        }
    }

    async fn set_back(&mut self, setback: Option<&Setback>) -> Settled {
        let Self { machine, terms, claimant, .. } = *self;
        let released = machine.release(terms, claimant, setback).await;
        // Of an inline delivery the sender knows of the failure, and the lease ends by itself. Nobody else knows of an attempt, nor
        // that the store may have noted down the start of one that there was none of.
        if released.is_some() || !terms.settle_in_place {
            return Settled::Released(released);
        }
        let retry = Retry::new(self, Verdict::Release(setback.cloned()));
        Settled::Released(Box::pin(retry.until_settled()).await)
    }
}

impl Machine {
    /// The first attempt. A store that does not answer at once may take longer than the lease: that the work is done is
    /// remembered here until it is known there.
    async fn complete_first(&self, terms: &Terms, claimant: &Claimant, record: &Record) -> Option<Hold> {
        let completing = pin!(self.complete(terms, claimant, record));
        let hold = unless(completing, || {
            self.pending.remember(claimant, record);
            std::future::pending()
        })
        .await;
        match hold {
            Some(_) => self.pending.forget(claimant),
            None => self.pending.remember(claimant, record),
        }
        hold
    }

    /// One attempt to complete; `None` when the store could not be asked.
    async fn complete(&self, terms: &Terms, claimant: &Claimant, record: &Record) -> Option<Hold> {
        let completion = record.completion(terms.retention);
        let claim = claimant.request(terms.lease);
        let answer = self.store_of(claimant).complete(&claim, &completion);
        ask("complete", &claimant.key, terms.claim_deadline, answer).await
    }

    /// Gives the claim back, so that the sender's retry runs. If the store cannot be asked, the lease ends by itself.
    pub(super) async fn release(&self, terms: &Terms, claimant: &Claimant, setback: Option<&Setback>) -> Option<Hold> {
        claimant.lost();
        let claim = claimant.request(terms.lease);
        let answer = self.give_back(claimant, &claim, setback);
        let released = ask("release", &claimant.key, terms.claim_deadline, answer).await;
        // If it was lost, somebody else runs the event now: those who wait are waiting for them.
        if released != Some(Hold::Lost) {
            self.waiters.ended(&claimant.key, Ending::Failed);
        }
        released
    }

    /// Releases the claim; as a failed attempt, if there was a setback.
    pub(super) fn give_back<'a>(
        &'a self,
        claimant: &'a Claimant,
        claim: &'a ClaimRequest<'a>,
        setback: Option<&'a Setback>,
    ) -> Answer<'a, Hold> {
        let store = self.store_of(claimant);
        match setback {
            Some(setback) => store.set_back(claim, claimant.attempt(), setback),
            None => store.release(claim.key, claim.token),
        }
    }

    /// The same from where nothing can be awaited.
    pub(super) fn release_in_background(self: &Arc<Self>, terms: &Terms, claimant: &Arc<Claimant>) {
        // At once, and not when the release is through: the handler may have given its event to somebody.
        claimant.lost();
        claimant.enter(Stage::Outside);
        let (machine, claimant, terms) = (self.clone(), claimant.clone(), terms.clone());
        let admission = self.gate.hold();
        in_background(async move {
            machine.release(&terms, &claimant, None).await;
            drop(admission);
        });
    }
}

/// An ending that the store could not be told of. It keeps the admission, so that the drain waits for it.
struct Retry {
    machine: Arc<Machine>,
    terms: Terms,
    claimant: Arc<Claimant>,
    verdict: Verdict,
    _admission: Option<Admission>,
}

impl Retry {
    fn new(run: &mut Run<'_>, verdict: Verdict) -> Self {
        let (machine, terms, claimant) = (run.machine.clone(), run.terms.clone(), run.claimant.clone());
        Self { machine, terms, claimant, verdict, _admission: run.admission.take() }
    }

    /// Asks until the store confirms or refuses, with the lease renewed meanwhile.
    async fn until_settled(&self) -> Option<Hold> {
        let _renewal = Renewal::start(&self.machine, &self.terms, &self.claimant, Instant::now());
        let aborted = async {
            self.machine.gate.reached(Phase::Aborting).await;
            None
        };
        let hold = either(self.ask(), aborted).await;
        telemetry::settled_late(&self.claimant.key, hold);
        self.machine.pending.forget(&self.claimant);
        hold
    }

    async fn ask(&self) -> Option<Hold> {
        let started = Instant::now();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while started.elapsed() < GIVE_UP_AFTER {
            backoff.pause().await;
            let Self { machine, terms, claimant, .. } = self;
            let hold = match &self.verdict {
                Verdict::Complete(record) => machine.complete(terms, claimant, record).await,
                Verdict::Release(setback) => machine.release(terms, claimant, setback.as_ref()).await,
            };
            if hold.is_some() {
                return hold;
            }
        }
        None
    }
}
