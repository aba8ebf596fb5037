//! Asking the store for the claim.

use super::claim_state::Stage;
use super::context::Context;
use super::detach::in_background;
use super::ledger::Settlement;
use super::timing::within;
use super::verdict::Verdict;
use crate::store::Claim;

/// A delivery that asks the store for its claim, once or until it has it.
///
/// Dropped while it is not known whether a claim took effect, it releases its token in the background, so that the
/// event is not held until the lease ends. Not before: the release would otherwise race the next question under the
/// same token.
pub(super) struct Claiming<'a> {
    cx: Context<'a>,
    in_doubt: bool,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(cx: Context<'a>) -> Self {
        Self { cx, in_doubt: false }
    }

    /// Asks the store once, within the deadline; `None` if the store could not be asked.
    pub(super) async fn ask(&mut self) -> Option<Claim> {
        let cx @ Context { machine, claim, .. } = self.cx;
        // Work that is done here, but that the store could not be told of yet.
        if let Some(fingerprint) = machine.pending.get(&claim.key) {
            return Some(Claim::Completed { same_body: fingerprint == claim.fingerprint });
        }
        let was_in_doubt = std::mem::replace(&mut self.in_doubt, true);
        claim.enter(Stage::Engaged);
        let request = cx.request();
        let answer = async {
            let answer = cx.ledger().claim(&request).await;
            // A claim that certainly took no effect need not be released, by a store that may well be down.
            if !was_in_doubt && answer.as_ref().is_err_and(|error| !error.is_in_doubt()) {
                self.in_doubt = false;
                claim.enter(Stage::Outside);
            }
            answer
        };
        let answer = cx.ask("claim", answer).await?;
        self.in_doubt = false;
        if !matches!(answer, Claim::Fresh { .. }) {
            claim.enter(Stage::Outside);
        }
        Some(answer)
    }
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        if !self.in_doubt {
            return;
        }
        self.cx.claim.enter(Stage::Outside);
        let (detached, admission) = (self.cx.detached(), self.cx.machine.hold());
        in_background(async move {
            let cx = detached.context();
            let (request, verdict) = (cx.request(), Verdict::Release(None));
            let settlement = Settlement { verdict: &verdict, attempt: None, retention: cx.terms.retention };
            // The operator is not told: the claim's own failure was.
            let _ = within(cx.terms.claim_deadline, cx.ledger().settle(&request, settlement)).await;
            drop(admission);
        });
    }
}
