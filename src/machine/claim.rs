//! Asking the store for the claim, and waiting while another delivery holds it.

use std::time::Duration;

use tokio::time::Instant;

use super::admission::Phase;
use super::claim_state::Stage;
use super::context::Context;
use super::detach::in_background;
use super::ledger::Settlement;
use super::timing::{Backoff, ask, either, within};
use super::verdict::Verdict;
use super::waiters::{FirstEnded, Waiter};
use crate::rejection::RejectionKind;
use crate::store::Claim;

/// Pauses between two questions to the store.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

/// A delivery that asks the store for its claim, once or until it has it.
///
/// Dropped while it is not known whether a claim took effect, it releases its token in the background, so that the
/// event is not held until the lease ends. While it may still ask, it releases nothing: the release could overtake its
/// next claim under the same token.
pub(super) struct Claiming<'a> {
    cx: &'a Context<'a>,
    in_doubt: bool,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(cx: &'a Context<'a>) -> Self {
        Self { cx, in_doubt: false }
    }

    /// Asks the store once, within the deadline; `None` if the store could not be asked.
    pub(super) async fn ask(&mut self, deadline: Duration) -> Option<Claim> {
        let cx @ &Context { machine, claim, .. } = self.cx;
        // The work is done, and the store has not confirmed the completion yet.
        if let Some(fingerprint) = machine.pending.get(&claim.key) {
            return Some(Claim::Completed { same_body: fingerprint == claim.fingerprint });
        }
        let was_in_doubt = std::mem::replace(&mut self.in_doubt, true);
        claim.set_stage(Stage::Unfinished);
        let request = cx.request();
        let answer = async {
            let answer = cx.ledger().claim(&request).await;
            // A claim that certainly took no effect need not be released, by a store that may well be down.
            if !was_in_doubt && answer.as_ref().is_err_and(|error| !error.is_in_doubt()) {
                self.in_doubt = false;
                claim.set_stage(Stage::NothingToDo);
            }
            answer
        };
        let answer = ask("claim", &claim.key, deadline, answer).await?;
        self.in_doubt = false;
        if !matches!(answer, Claim::Fresh { .. }) {
            claim.set_stage(Stage::NothingToDo);
        }
        Some(answer)
    }
}

impl Drop for Claiming<'_> {
    fn drop(&mut self) {
        if !self.in_doubt {
            return;
        }
        self.cx.claim.set_stage(Stage::NothingToDo);
        let (detached, admission) = (self.cx.detached(), self.cx.machine.hold());
        in_background(async move {
            let cx = detached.context();
            let (request, verdict) = (cx.request(), Verdict::Release(None));
            let settlement = Settlement { verdict: &verdict, attempt: None, retention: cx.terms.retention };
            // Not reported: the failed claim was.
            let _ = within(cx.terms.claim_deadline, cx.ledger().settle(&request, settlement)).await;
            drop(admission);
        });
    }
}

/// How the wait for the first delivery ended.
pub(super) enum Waited {
    /// The first delivery's lease lapsed, or another instance released it: this delivery holds the claim now.
    TookOver {
        attempt: Option<u32>,
        since: Instant,
    },
    Completed,
    Refused(RejectionKind),
}

/// Waits until the first delivery has ended, or until this one takes its claim over. Work that may still fail is never
/// taken for completed.
pub(super) async fn wait(cx: &Context<'_>) -> Waited {
    let &Context { machine, terms, claim } = cx;
    let waiter = match machine.waiters.join(&claim.key, terms.max_waiting_per_key, terms.max_running) {
        Ok(waiter) => waiter,
        Err(full) => return Waited::Refused(full),
    };
    let here = async {
        match waiter.ending().await {
            FirstEnded::Completed => Waited::Completed,
            FirstEnded::Failed => Waited::Refused(RejectionKind::FirstFailed),
        }
    };
    let elsewhere = ask_until_ended(cx, &waiter);
    let too_late = async {
        tokio::time::sleep(terms.wait).await;
        Waited::Refused(RejectionKind::InFlight)
    };
    let draining = async {
        machine.gate.reached(Phase::Draining).await;
        Waited::Refused(RejectionKind::Draining)
    };
    either(either(here, elsewhere), either(too_late, draining)).await
}

/// Asks the store with claims under this delivery's own token: the first delivery may run in another process, and a
/// claim takes a lapsed lease over. One waiter per key asks for all of them. It asks at once, because the first
/// delivery may have ended before this one began to wait.
async fn ask_until_ended(cx: &Context<'_>, waiter: &Waiter<'_>) -> Waited {
    let _turn = waiter.turn().await;
    let mut claiming = Claiming::new(cx);
    let mut backoff = Backoff::new(PAUSES);
    loop {
        let since = Instant::now();
        match claiming.ask(cx.terms.claim_deadline).await {
            Some(Claim::Fresh { attempt }) => return Waited::TookOver { attempt, since },
            Some(Claim::Accepted { .. } | Claim::Completed { .. }) => {
                cx.machine.waiters.ended(&cx.claim.key, FirstEnded::Completed);
                return Waited::Completed;
            }
            Some(Claim::InFlight { .. }) | None => {}
        }
        backoff.pause().await;
    }
}
