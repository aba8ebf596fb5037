use std::borrow::Cow;
use std::time::Duration;

use super::asking::ask;
use super::backoff::Backoff;
use super::waiters::Ending;
use super::{Claimant, Machine, Record, Settled, Terms, Verdict};
use crate::enlist;
use crate::store::erased::Setback;
use crate::store::{Hold, StoreError, StoreErrorKind};

/// For the question whether the handler's transaction has completed the claim: nothing is written if it has.
const COMMITTED: Record = Record { failed: false, summary: Cow::Borrowed(enlist::COMMITTED) };

const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

impl Machine {
    /// Settles a claim whose completion was put into the handler's own transaction. What came of that only the store knows: the
    /// reply to the commit may be lost, and the commit may have been forgotten.
    pub(super) async fn settle_enlisted(&self, terms: &Terms, claimant: &Claimant, verdict: &Verdict) -> Settled {
        claimant.lost();
        if let Verdict::Complete(record) = verdict
            && record.failed
        {
            // Rolled back, and given up for good: a release would ask for another run.
            return self.confirm(terms, claimant, record, Settled::Failed).await;
        }
        let (claim, setback) = (claimant.request(terms.lease), setback(verdict));
        let released = || self.give_back(claimant, &claim, setback.as_ref());
        let released = ask("release", &claimant.key, terms.claim_deadline, once_unlocked(released)).await;
        // It does not run any more: this delivery's transaction has completed it, or another delivery has it.
        if released == Some(Hold::Lost) {
            return self.confirm(terms, claimant, &COMMITTED, Settled::Completed).await;
        }
        self.waiters.ended(&claimant.key, Ending::Failed);
        match (released, verdict) {
            (None, _) => Settled::Unknown,
            (Some(_), Verdict::Complete(_)) => Settled::NotCommitted,
            (Some(hold), Verdict::Release(_)) => Settled::Released(Some(hold)),
        }
    }

    /// `ours`, if the record is this delivery's.
    async fn confirm(&self, terms: &Terms, claimant: &Claimant, record: &Record, ours: Settled) -> Settled {
        let (claim, completion) = (claimant.request(terms.lease), record.completion(terms.retention));
        let completed = || self.store_of(claimant).complete(&claim, &completion);
        match ask("complete", &claimant.key, terms.claim_deadline, once_unlocked(completed)).await {
            Some(Hold::Held) => {
                self.waiters.ended(&claimant.key, Ending::Completed);
                ours
            }
            Some(Hold::Lost) => Settled::Lost,
            None => Settled::Unknown,
        }
    }
}

/// Why the event has to be run again, if its transaction has not completed it.
fn setback(verdict: &Verdict) -> Option<Setback> {
    match verdict {
        Verdict::Complete(_) => Some(Setback::new(enlist::NOT_COMMITTED)),
        Verdict::Release(setback) => setback.clone(),
    }
}

/// Asks until no transaction holds the record any more. One that was dropped is rolled back a moment later.
async fn once_unlocked<F>(ask: impl Fn() -> F) -> Result<Hold, StoreError>
where
    F: Future<Output = Result<Hold, StoreError>>,
{
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        match ask().await {
            Err(error) if error.kind() == StoreErrorKind::Locked => backoff.pause().await,
            answer => return answer,
        }
    }
}
