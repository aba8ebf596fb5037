use std::time::Duration;

use super::asking::ask;
use super::{Claimant, Ended, Machine, Terms};
use crate::guard::Guard;
use crate::rejection::RejectionKind;
use crate::store::{Claim, ClaimRequest, Completion, Hold};

impl Machine {
    /// Lets a body pass under the id that it first came with, and under no other.
    ///
    /// Before the event is claimed: were this process to end in between, the sender's retry has the same id and passes.
    /// Nothing need be undone when this is dropped or the store fails half-way, for the same reason.
    pub(super) async fn pass_guard(&self, terms: &Terms, claimant: &Claimant, guard: &Guard) -> Result<(), Ended> {
        let request = guard.request(claimant.event_type.as_deref(), terms.lease);
        let answer = self.store.claim(&request);
        match ask("claim for the replay guard", &claimant.key, terms.claim_deadline, answer).await {
            Some(Claim::Fresh { .. }) => self.bind(terms, claimant, &request, guard.window).await,
            Some(
                Claim::InFlight { same_body: same_id }
                | Claim::Accepted { same_body: same_id }
                | Claim::Completed { same_body: same_id },
            ) => same_id.then_some(()).ok_or(Ended::refused(RejectionKind::Replayed)),
            None => Err(Ended::refused(RejectionKind::StoreUnavailable)),
        }
    }

    /// Remembers under which id the body came.
    async fn bind(
        &self,
        terms: &Terms,
        claimant: &Claimant,
        claim: &ClaimRequest<'_>,
        window: Duration,
    ) -> Result<(), Ended> {
        let completion = Completion::succeeded("replay guard", window);
        let answer = self.store.complete(claim, &completion);
        match ask("complete for the replay guard", &claimant.key, terms.claim_deadline, answer).await {
            Some(Hold::Held) => Ok(()),
            // Lost to another id after a lease's time, or so it seems: the sender's retry is going to know.
            Some(Hold::Lost) | None => Err(Ended::refused(RejectionKind::StoreUnavailable)),
        }
    }
}
