use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::Phase;
use super::backoff::Backoff;
use super::claiming::Claiming;
use super::deadline::either;
use super::waiters::{Ending, Seat};
use super::{Claimant, Machine, Terms};
use crate::rejection::RejectionKind;
use crate::store::Claim;

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What became of waiting for the first delivery.
pub(super) enum Waited {
    /// Its lease lapsed, or another instance released it: the claim is this delivery's now.
    TookOver {
        attempt: Option<u32>,
        since: Instant,
    },
    Completed,
    Refused(RejectionKind),
}

impl Machine {
    /// Waits until the first delivery has ended, or its claim can be had. Never answers for work that may still fail.
    pub(super) async fn wait(self: &Arc<Self>, terms: &Terms, claimant: &Arc<Claimant>) -> Waited {
        let seat = match self.waiters.join(&claimant.key, terms.max_waiting_per_key, terms.max_running) {
            Ok(seat) => seat,
            Err(full) => return Waited::Refused(full),
        };
        let here = async {
            match seat.ending().await {
                Ending::Completed => Waited::Completed,
                Ending::Failed => Waited::Refused(RejectionKind::FirstFailed),
            }
        };
        let elsewhere = self.ask_until_ended(&seat, terms, claimant);
        let too_late = async {
            tokio::time::sleep(terms.wait).await;
            Waited::Refused(RejectionKind::InFlight)
        };
        let draining = async {
            self.gate.reached(Phase::Draining).await;
            Waited::Refused(RejectionKind::Draining)
        };
        either(either(here, elsewhere), either(too_late, draining)).await
    }

    /// Asks the store with claims under this delivery's own token: the first delivery may run in another process, and
    /// a lapsed lease is taken over by the same question. One waiter per key asks for all; at once, because the first
    /// delivery may have ended before this one took its seat.
    async fn ask_until_ended(self: &Arc<Self>, seat: &Seat<'_>, terms: &Terms, claimant: &Arc<Claimant>) -> Waited {
        let _turn = seat.turn().await;
        let mut claiming = Claiming::new(self, terms, claimant);
        let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
        loop {
            let since = Instant::now();
            match claiming.ask().await {
                Some(Claim::Fresh { attempt }) => return Waited::TookOver { attempt, since },
                Some(Claim::Accepted { .. } | Claim::Completed { .. }) => {
                    self.waiters.ended(&claimant.key, Ending::Completed);
                    return Waited::Completed;
                }
                Some(Claim::InFlight { .. }) | None => {}
            }
            backoff.pause().await;
        }
    }
}
