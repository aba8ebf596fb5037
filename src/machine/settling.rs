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
    Released,
    /// The handler answered as if it had committed the completion, and had not: released.
    NotCommitted,
    /// The store cannot say what became of the handler's transaction.
    Unknown,
    /// Another delivery took the claim over: what this one did is not the event's outcome.
    Lost,
}

impl Run<'_> {
    /// Completes or releases the claim.
    pub(super) async fn settle(self, verdict: Verdict) -> Settled {
        let Self { machine, terms, claimant, admission, .. } = self;
        if claimant.is_enlisted() {
            return machine.settle_enlisted(terms, claimant, &verdict).await;
        }
        let record = match verdict {
            Verdict::Complete(record) => record,
            Verdict::Release(setback) => {
                machine.release(terms, claimant, setback.as_ref()).await;
                return Settled::Released;
            }
        };
        match machine.complete_first(terms, claimant, &record).await {
            Some(Hold::Held) => {
                machine.waiters.ended(&claimant.key, Ending::Completed);
                if record.failed { Settled::Failed } else { Settled::Completed }
            }
            Some(Hold::Lost) => {
                claimant.lost();
                Settled::Lost
            }
            None => {
                // The work is done, whatever the store says: those who wait for it may be told.
                machine.waiters.ended(&claimant.key, Ending::Completed);
                let retry = Retry {
                    machine: machine.clone(),
                    terms: terms.clone(),
                    claimant: claimant.clone(),
                    record,
                    admission,
                };
                tokio::spawn(retry.until_settled());
                Settled::CompletionPending
            }
        }
    }
}

impl Machine {
    /// The first attempt. A store that does not answer at once may take longer than the lease: that the work is done is
    /// remembered here until it is known there.
    async fn complete_first(&self, terms: &Terms, claimant: &Claimant, record: &Record) -> Option<Hold> {
        let completing = pin!(self.complete(terms, claimant, record));
        let hold = unless(completing, || {
            self.pending.remember(claimant);
            std::future::pending()
        })
        .await;
        match hold {
            Some(_) => self.pending.forget(claimant),
            None => self.pending.remember(claimant),
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
    pub(super) async fn release(&self, terms: &Terms, claimant: &Claimant, setback: Option<&Setback>) {
        claimant.lost();
        let claim = claimant.request(terms.lease);
        let answer = self.give_back(claimant, &claim, setback);
        let released = ask("release", &claimant.key, terms.claim_deadline, answer).await;
        // If it was lost, somebody else runs the event now: those who wait are waiting for them.
        if released != Some(Hold::Lost) {
            self.waiters.ended(&claimant.key, Ending::Failed);
        }
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

/// A completion that the store could not be told of. It keeps the admission, so that the drain waits for it.
struct Retry {
    machine: Arc<Machine>,
    terms: Terms,
    claimant: Arc<Claimant>,
    record: Record,
    admission: Admission,
}

impl Retry {
    /// Asks until the store confirms or refuses, with the lease renewed meanwhile.
    async fn until_settled(self) {
        let renewal = Renewal::start(&self.machine, &self.terms, &self.claimant, Instant::now());
        let aborted = async {
            self.machine.gate.reached(Phase::Aborting).await;
            None
        };
        let hold = either(self.ask(), aborted).await;
        telemetry::completion_retried(&self.claimant.key, hold);
        self.machine.pending.forget(&self.claimant);
        drop((renewal, self.admission));
    }

    async fn ask(&self) -> Option<Hold> {
        let started = Instant::now();
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        while started.elapsed() < GIVE_UP_AFTER {
            backoff.pause().await;
            let hold = self.machine.complete(&self.terms, &self.claimant, &self.record).await;
            if hold.is_some() {
                return hold;
            }
        }
        None
    }
}
