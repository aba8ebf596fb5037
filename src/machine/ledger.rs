//! Where the claim of a delivery is kept, and what the end of its work means there: the four kinds of deliveries, side
//! by side.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use super::verdict::{CompletionRecord, RetryReason, Verdict};
use crate::retry::RetryPolicy;
use crate::store::queue::{Queue, StoredRequest};
use crate::store::{Claim, ClaimRequest, Ending, Enlistment, Hold, Store, StoreFuture};

/// Keeps the claims of one kind of delivery.
pub(crate) trait Ledger: Send + Sync {
    /// Asks for the claim.
    fn claim<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim>;

    /// Extends the lease of the claim.
    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold>;

    /// Ends the claim as the verdict says.
    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, settlement: Settlement<'a>) -> StoreFuture<'a, Hold>;

    /// The statement with which a handler completes the claim in a transaction of its own.
    fn enlistment(&self) -> Option<Enlistment>;
}

/// How work ended, and what else the settlement needs.
#[derive(Clone, Copy)]
pub(crate) struct Settlement<'a> {
    pub(crate) verdict: &'a Verdict,
    /// How often the event has been claimed, where the store counts.
    pub(crate) attempt: Option<u32>,
    /// How long the completion is remembered.
    pub(crate) retention: Duration,
}

/// Deliveries that run while the sender waits. The sender repeats what fails.
pub(crate) struct InlineLedger(pub(crate) Arc<dyn Store>);

impl Ledger for InlineLedger {
    fn claim<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        self.0.claim(claim)
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        self.0.renew(claim)
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, settlement: Settlement<'a>) -> StoreFuture<'a, Hold> {
        self.0.settle(
            claim,
            match settlement.verdict {
                Verdict::Complete(record) => Ending::Complete(record.completion(settlement.retention)),
                Verdict::Release(_) => Ending::Release,
            },
        )
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.0.enlistment()
    }
}

/// A delivery whose request is stored, for a worker to run later. To claim is to enqueue.
pub(crate) struct InboxLedger {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) request: StoredRequest,
}

impl Ledger for InboxLedger {
    fn claim<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        self.queue.enqueue(claim, &self.request)
    }

    /// Never asked: the delivery ends once its event is enqueued. The queue answers as for any other token.
    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        self.queue.renew(claim)
    }

    /// An event that may have been enqueued is going to be run, and the sender's retry finds it: there is nothing to
    /// take back.
    fn settle<'a>(&'a self, _: &'a ClaimRequest<'a>, _: Settlement<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(ready(Ok(Hold::Held)))
    }

    fn enlistment(&self) -> Option<Enlistment> {
        None
    }
}

/// Events that a worker has leased. The queue repeats what fails, until there were too many attempts.
pub(crate) struct WorkerLedger {
    pub(crate) queue: Arc<dyn Queue>,
    pub(crate) retries: RetryPolicy,
}

impl WorkerLedger {
    /// Whether an event is given up whose attempt failed for this reason.
    pub(crate) fn gives_up(&self, attempt: u32, why: &RetryReason) -> bool {
        why.called && self.retries.is_last(attempt)
    }
}

impl Ledger for WorkerLedger {
    /// Never asked: the lease is the claim. The queue answers as to any other caller that the event is accepted.
    fn claim<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        self.queue.claim(claim)
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        self.queue.renew(claim)
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, settlement: Settlement<'a>) -> StoreFuture<'a, Hold> {
        let attempt = settlement.attempt.unwrap_or(1);
        self.queue.settle(
            claim,
            match settlement.verdict {
                Verdict::Complete(record @ CompletionRecord { failed: false, .. }) => {
                    Ending::Complete(record.completion(settlement.retention))
                }
                Verdict::Complete(CompletionRecord { summary, .. }) => Ending::Bury { reason: summary },
                Verdict::Release(Some(why)) if self.gives_up(attempt, why) => Ending::Bury { reason: &why.reason },
                Verdict::Release(Some(why)) => {
                    Ending::Retry { after: self.retries.pause(attempt, why.retry_after), reason: &why.reason }
                }
                Verdict::Release(None) => Ending::Release,
            },
        )
    }

    fn enlistment(&self) -> Option<Enlistment> {
        self.queue.enlistment()
    }
}

/// Deliveries of events that have no id: every one of them runs, and no store knows of it.
pub(crate) struct NoIdLedger;

impl Ledger for NoIdLedger {
    fn claim<'a>(&'a self, _: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(ready(Ok(Claim::Fresh { attempt: None })))
    }

    fn renew<'a>(&'a self, _: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(ready(Ok(Hold::Held)))
    }

    fn settle<'a>(&'a self, _: &'a ClaimRequest<'a>, _: Settlement<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(ready(Ok(Hold::Held)))
    }

    fn enlistment(&self) -> Option<Enlistment> {
        None
    }
}
