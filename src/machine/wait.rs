//! Waiting for the first delivery of the same event.

use std::time::Duration;

use tokio::time::Instant;

use super::admission::Phase;
use super::claim::Claiming;
use super::context::Context;
use super::timing::{Backoff, either};
use super::waiters::{FirstEnded, Waiter};
use crate::rejection::RejectionKind;
use crate::store::Claim;

/// Pauses between two questions to the store.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(500)];

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
pub(super) async fn wait(cx: Context<'_>) -> Waited {
    let Context { machine, terms, claim } = cx;
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
async fn ask_until_ended(cx: Context<'_>, waiter: &Waiter<'_>) -> Waited {
    let _turn = waiter.turn().await;
    let mut claiming = Claiming::new(cx);
    let mut backoff = Backoff::new(PAUSES);
    loop {
        let since = Instant::now();
        match claiming.ask().await {
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
