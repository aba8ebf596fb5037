use std::sync::Arc;

use super::asking::ask;
use super::detach::in_background;
use super::{Claimant, Machine, Terms, within};
use crate::claimant::Stage;
use crate::store::Claim;

/// A claimant that asks the store for its claim, once or until it has it.
///
/// Dropped while it is not known whether a claim took effect, it has its token released in the background, so that the event
/// is not held until the lease ends. Not before: the next question under the same token would otherwise race the release.
pub(super) struct Claiming<'a> {
    machine: &'a Arc<Machine>,
    terms: &'a Terms,
    claimant: &'a Arc<Claimant>,
    in_doubt: bool,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(machine: &'a Arc<Machine>, terms: &'a Terms, claimant: &'a Arc<Claimant>) -> Self {
        Self { machine, terms, claimant, in_doubt: false }
    }

    /// Asks the store once, within the deadline; `None` when it could not be asked.
    pub(super) async fn ask(&mut self) -> Option<Claim> {
        let Self { machine, terms, claimant, .. } = *self;
        // Work that is done here, but that the store could not be told of yet.
        if let Some(fingerprint) = machine.pending.get(&claimant.key) {
            return Some(Claim::Completed { same_body: fingerprint == claimant.fingerprint });
        }
        let was_in_doubt = std::mem::replace(&mut self.in_doubt, true);
        claimant.enter(Stage::Engaged);
        let request = claimant.request(terms.lease);
        let answer = async {
            let answer = machine.store_of(claimant).claim(&request).await;
            // What certainly took no effect need not be released, by a store that may well be down.
            if !was_in_doubt && answer.as_ref().is_err_and(|error| !error.is_in_doubt()) {
                self.in_doubt = false;
                claimant.enter(Stage::Outside);
            }
            answer
        };
        let claim = ask("claim", &claimant.key, terms.claim_deadline, answer).await?;
        self.in_doubt = false;
        if !matches!(claim, Claim::Fresh { .. }) {
            claimant.enter(Stage::Outside);
        }
        Some(claim)
    }
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        if !self.in_doubt {
            return;
        }
        self.claimant.enter(Stage::Outside);
        let (machine, claimant, deadline) = (self.machine.clone(), self.claimant.clone(), self.terms.claim_deadline);
        let admission = machine.gate.hold();
        in_background(async move {
            // Not told: the claim's own failure was.
            let _ = within(deadline, machine.store_of(&claimant).release(&claimant.key, claimant.token)).await;
            drop(admission);
        });
    }
}
