use std::borrow::Cow;

use super::waiters::Ending;
use super::{Claimant, Machine, Record, Settled, Terms, Verdict};
use crate::store::Hold;

/// For the question whether the handler's transaction has completed the claim: nothing is written if it has.
const COMMITTED: Record = Record { failed: false, summary: Cow::Borrowed("committed by the handler") };

impl Machine {
    /// Settles a claim whose completion was put into the handler's own transaction. What came of that only the store knows: the
    /// reply to the commit may be lost, and the commit may have been forgotten.
    pub(super) async fn settle_enlisted(&self, terms: &Terms, claimant: &Claimant, verdict: &Verdict) -> Settled {
        if let Verdict::Complete(record) = verdict
            && record.failed
        {
            // Rolled back, and given up for good: a release would ask for another run.
            return self.confirm(terms, claimant, record, Settled::Failed).await;
        }
        match (self.release(terms.claim_deadline, claimant).await, verdict) {
            (Some(Hold::Held), Verdict::Complete(_)) => Settled::NotCommitted,
            (Some(Hold::Held), Verdict::Release) => Settled::Released,
            // It does not run any more: this delivery's transaction has completed it, or another delivery has it.
            (Some(Hold::Lost), _) => self.confirm(terms, claimant, &COMMITTED, Settled::Completed).await,
            (None, _) => Settled::Unknown,
        }
    }

    /// `ours`, if the record is this delivery's.
    async fn confirm(&self, terms: &Terms, claimant: &Claimant, record: &Record, ours: Settled) -> Settled {
        match self.complete(terms, claimant, record).await {
            Some(Hold::Held) => {
                self.waiters.ended(&claimant.key, Ending::Completed);
                ours
            }
            Some(Hold::Lost) => {
                claimant.lost();
                Settled::Lost
            }
            None => Settled::Unknown,
        }
    }
}
