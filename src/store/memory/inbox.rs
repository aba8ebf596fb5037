use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::queue::{Now, Queue, Retired};
use super::store::{MemoryStore, Shared};
use crate::EventKey;
use crate::inbox::{Filter, Inbox, InboxCounts, KeptEvent, LeaseRequest, Leased, Page, Parcel, Requeued, requeued};
use crate::store::{Claim, ClaimRequest, Completion, Hold, StoreError, StoreErrorKind};

/// Events are kept whole, in this process's memory, and are gone with it: for tests and for what may be lost. Of completed events
/// the last 10,000 are kept whole, and of older ones only what tells duplicates.
impl Inbox for MemoryStore {
    async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, StoreError> {
        let shared = &*self.shared;
        let (mut queue, now) = (shared.open_queue(), shared.both());
        if queue.is_accepted_by(claim.key, claim.token) {
            return Ok(Claim::Fresh { attempt: None });
        }
        if let Some(answer) = queue.answer(claim, now) {
            return Ok(answer);
        }
        // Free to take, if nobody runs it inline and it is not completed.
        let answer = shared.claim(claim)?;
        if !matches!(answer, Claim::Fresh { .. }) {
            return Ok(answer);
        }
        let _ = shared.release(claim.key, claim.token);
        if queue.len() >= shared.capacity {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        queue.insert(claim, parcel, now);
        drop(queue);
        shared.arrived.notify_waiters();
        Ok(Claim::Fresh { attempt: None })
    }

    async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, StoreError> {
        let shared = &*self.shared;
        let (mut queue, now) = (shared.open_queue(), shared.both());
        if queue.is_accepted_by(claim.key, claim.token) {
            return Ok(Some(Claim::Fresh { attempt: None }));
        }
        if let Some(answer) = queue.answer(claim, now) {
            return Ok(Some(answer));
        }
        let answer = shared.claim(claim)?;
        if !matches!(answer, Claim::Fresh { .. }) {
            return Ok(Some(answer));
        }
        let _ = shared.release(claim.key, claim.token);
        Ok(None)
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, StoreError> {
        Ok(self.shared.queue().lease(request, self.shared.both()))
    }

    async fn start(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        self.settle(|queue, now| queue.start(claim, now))
    }

    async fn retry(&self, claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Result<Hold, StoreError> {
        self.settle(|queue, now| queue.retry(claim, after, reason, now))
    }

    async fn bury(&self, claim: &ClaimRequest<'_>, reason: &str) -> Result<Hold, StoreError> {
        self.settle(|queue, now| queue.bury(claim, reason, now))
    }

    fn wake(&self) -> impl Future<Output = ()> + Send {
        self.shared.arrived.notified()
    }

    async fn waiting(&self, up_to: u64) -> Result<u64, StoreError> {
        Ok(self.shared.queue().waiting(up_to))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, StoreError> {
        Ok(self.shared.queue().list(filter, page))
    }

    async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, StoreError> {
        Ok(self.shared.queue().get(key))
    }

    async fn requeue(&self, filter: &Filter, completed_too: bool) -> Result<Requeued, StoreError> {
        let requeued = self.shared.queue().requeue(filter, requeued(completed_too), self.shared.both());
        self.shared.arrived.notify_waiters();
        Ok(requeued)
    }

    async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, StoreError> {
        let discarded = self.shared.queue().discard(filter, retention, self.shared.both());
        self.shared.arrived.notify_waiters();
        Ok(discarded)
    }

    async fn forget(&self, filter: &Filter) -> Result<u64, StoreError> {
        Ok(self.shared.queue().forget(filter))
    }

    async fn counts(&self) -> Result<InboxCounts, StoreError> {
        Ok(self.shared.queue().counts(self.shared.both()))
    }
}

impl MemoryStore {
    fn settle(&self, verb: impl FnOnce(&mut Queue, Now) -> Option<Hold>) -> Result<Hold, StoreError> {
        Ok(self.shared.settle_queued(verb).unwrap_or(Hold::Lost))
    }
}

impl Shared {
    /// Settles an event of the inbox; `None` if it has no such event.
    pub(super) fn settle_queued(&self, verb: impl FnOnce(&mut Queue, Now) -> Option<Hold>) -> Option<Hold> {
        if !self.has_queue() {
            return None;
        }
        let (mut queue, now) = (self.queue(), self.both());
        let hold = verb(&mut queue, now)?;
        while let Some(retired) = queue.retire(now) {
            self.remember(&retired);
        }
        drop(queue);
        // What was behind it in its line may be due now.
        self.arrived.notify_waiters();
        Some(hold)
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of an event that is not kept whole any more, what tells duplicates. In a full store not even that, as with those that are
    /// evicted.
    fn remember(&self, retired: &Retired) {
        let claim = ClaimRequest::new(&retired.key, retired.token, Duration::ZERO).fingerprint(retired.fingerprint);
        if self.claim(&claim).is_ok() {
            let _ = self.complete(&claim, &Completion::succeeded(&retired.summary, retired.retention));
        }
    }

    pub(super) fn both(&self) -> Now {
        Now { elapsed: self.now(), wall: self.clock.now() }
    }
}
