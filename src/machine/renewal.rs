//! Keeping the lease of a claim alive while its work runs.

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::context::Context;
use super::timing::ask;
use crate::store::Hold;
use crate::telemetry;

/// Keeps a lease alive from a task of its own: a handler that blocks its thread must not lose it. Stops when dropped.
pub(super) struct Renewal {
    task: JoinHandle<()>,
    first: Instant,
    lost: watch::Receiver<bool>,
}

impl Renewal {
    /// Renews from `first` on; the lease must last until then.
    pub(super) fn start(cx: Context<'_>, first: Instant) -> Self {
        let (lose, lost) = watch::channel(false);
        let detached = cx.detached();
        let task = tokio::spawn(async move {
            let cx = detached.context();
            keep(cx, first).await;
            cx.claim.lost();
            telemetry::claim_lost(&cx.claim.key);
            let _ = lose.send(true);
        });
        Self { task, first, lost }
    }

    /// Stops it, and is ready when nothing more can come of it: a renewal after the settlement could bring the claim
    /// back.
    pub(super) async fn end(mut self) {
        self.task.abort();
        // Until then it has only slept, and is not going to wake up.
        if Instant::now() >= self.first {
            let _ = (&mut self.task).await;
        }
    }

    /// Ready when the claim is no longer held; never, if the renewal is dropped first.
    pub(super) async fn lost(&self) {
        if self.lost.clone().wait_for(|lost| *lost).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Renews at a third of the lease until the store refuses, or cannot be asked until the lease would have ended.
async fn keep(cx: Context<'_>, first: Instant) {
    let (lease, deadline) = (cx.terms.lease, cx.terms.claim_deadline);
    let mut next = first;
    let mut ends = first + lease * 2 / 3;
    let mut asked_before = false;
    loop {
        tokio::time::sleep_until(next.min(ends)).await;
        let _turn = match cx.claim.enlisting() {
            Some(state) => Some(state.renewable().await),
            None => None,
        };
        let asked = Instant::now();
        let left = ends.saturating_duration_since(asked);
        // Once even when it is late, because the handler kept the thread: the store renews a lease that no other token
        // took over.
        if left.is_zero() && asked_before {
            return;
        }
        asked_before = true;
        let request = cx.request();
        let answer = cx.ledger().renew(&request);
        let deadline = if left.is_zero() { deadline } else { deadline.min(left) };
        match ask("renew", &cx.claim.key, deadline, answer).await {
            Some(Hold::Held) => {
                (next, ends, asked_before) = (asked + lease / 3, asked + lease, false);
                continue;
            }
            Some(Hold::Lost) if !cx.claim.is_enlisted() => return,
            // Enlisted while it was asked: the handler's own transaction may have completed the claim.
            Some(Hold::Lost) | None => {}
        }
        // Sooner than the next renewal would be: there is not much of the lease left.
        next = Instant::now() + lease / 12;
    }
}
