use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use super::entry::Now;
use super::queue::Queue;
use super::store::{MemoryStore, Shared};
use crate::inbox::{Filter, Inbox, InboxCounts, KeptEvent, LeaseRequest, Leased, Page, Parcel, Requeued, requeued};
use crate::store::{Claim, ClaimRequest, Hold, StoreError, StoreErrorKind};
use crate::{EventKey, telemetry};

/// Events are kept whole, in this process's memory, and are gone with it: for tests and for what may be lost.
///
/// There is room for as many events as the store's [capacity](crate::store::MemoryStoreBuilder::capacity) says. Waiting, running
/// and dead events stay. Of completed events the last 10,000 are kept whole, or fewer where others need the room; of older ones
/// only the record is, beside those of inline deliveries: it still tells duplicates, but the event is not listed and cannot be
/// requeued any more. [`MemoryStats::retired`](crate::store::MemoryStats::retired) counts these events. If no completed event can
/// go, new ones are refused with [`StoreErrorKind::Full`].
///
/// The last [sequence](crate::inbox::Order::sequence) of a resource is kept while events of the resource wait or run, and
/// afterwards for as many resources as the capacity says; the resource whose last event ended the longest ago is forgotten first, and
/// [counted](crate::store::MemoryStats::sequences_forgotten). An event of such a resource that arrives late, with a sequence
/// that was applied long ago, is run instead of skipped.
impl Inbox for MemoryStore {
    async fn accept(&self, claim: &ClaimRequest<'_>, parcel: &Parcel) -> Result<Claim, StoreError> {
        let shared = &*self.shared;
        let (mut queue, now) = shared.open_queue();
        if let Some(answer) = shared.known(&queue, claim) {
            return Ok(answer);
        }
        while queue.len() >= shared.capacity {
            if !shared.retire_oldest(&mut queue) {
                return Err(StoreError::new(StoreErrorKind::Full));
            }
        }
        // A lapsed inline claim of the event ends here: the inbox is to run the event.
        shared.vacate(claim.key);
        queue.insert(claim, parcel, now);
        shared.watch_filling(&mut queue);
        drop(queue);
        shared.arrived.notify_waiters();
        Ok(Claim::Fresh { attempt: None })
    }

    async fn peek(&self, claim: &ClaimRequest<'_>) -> Result<Option<Claim>, StoreError> {
        let (queue, _) = self.shared.queue();
        Ok(self.shared.known(&queue, claim))
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<Vec<Leased>, StoreError> {
        // Nothing is awaited: a caller that drops this future has either leased nothing or been answered.
        let (mut queue, now) = self.shared.queue();
        Ok(queue.lease(request, now))
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
        Ok(self.shared.queue().0.waiting(up_to))
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Vec<KeptEvent>, StoreError> {
        Ok(self.shared.queue().0.list(filter, page))
    }

    async fn get(&self, key: &EventKey) -> Result<Option<KeptEvent>, StoreError> {
        Ok(self.shared.queue().0.get(key))
    }

    async fn requeue(&self, filter: &Filter, completed_too: bool) -> Result<Requeued, StoreError> {
        let (mut queue, now) = self.shared.queue();
        let requeued = queue.requeue(filter, requeued(completed_too), now);
        self.shared.watch_filling(&mut queue);
        drop(queue);
        self.shared.arrived.notify_waiters();
        Ok(requeued)
    }

    async fn discard(&self, filter: &Filter, retention: Duration) -> Result<u64, StoreError> {
        let (mut queue, now) = self.shared.queue();
        let discarded = queue.discard(filter, retention, now);
        self.shared.tidy(&mut queue, now);
        drop(queue);
        self.shared.arrived.notify_waiters();
        Ok(discarded)
    }

    async fn forget(&self, filter: &Filter) -> Result<u64, StoreError> {
        let (mut queue, now) = self.shared.queue();
        let forgotten = queue.forget(filter);
        self.shared.tidy(&mut queue, now);
        Ok(forgotten)
    }

    async fn counts(&self) -> Result<InboxCounts, StoreError> {
        let (mut queue, now) = self.shared.queue();
        Ok(queue.counts(now))
    }
}

impl MemoryStore {
    fn settle(&self, verb: impl FnOnce(&mut Queue, Now) -> Option<Hold>) -> Result<Hold, StoreError> {
        Ok(self.shared.settle_queued(verb).unwrap_or(Hold::Lost))
    }
}

impl Shared {
    /// The queue, without what has expired by now.
    pub(super) fn queue(&self) -> (MutexGuard<'_, Queue>, Now) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Now { elapsed: self.now(), wall: self.clock.now() };
        queue.expire(now);
        (queue, now)
    }

    /// Settles an event of the inbox; `None` if it has no such event.
    pub(super) fn settle_queued(&self, verb: impl FnOnce(&mut Queue, Now) -> Option<Hold>) -> Option<Hold> {
        if !self.has_queue() {
            return None;
        }
        let (mut queue, now) = self.queue();
        let hold = verb(&mut queue, now)?;
        self.tidy(&mut queue, now);
        drop(queue);
        // What was behind it in its line may be due now.
        self.arrived.notify_waiters();
        Some(hold)
    }

    /// The answer to an event that the store knows, queued or inline.
    fn known(&self, queue: &Queue, claim: &ClaimRequest<'_>) -> Option<Claim> {
        if queue.is_accepted_by(claim.key, claim.token) {
            return Some(Claim::Fresh { attempt: None });
        }
        queue.answer(claim).or_else(|| self.look(claim))
    }

    /// Drops what is not kept any longer after events have ended.
    fn tidy(&self, queue: &mut Queue, now: Now) {
        queue.expire(now);
        while queue.has_surplus() && self.retire_oldest(queue) {}
        self.watch_filling(queue);
    }

    /// Keeps only the record of the event that was completed the longest ago. `false` if there is none, or no room for the record:
    /// then the event stays as it is.
    fn retire_oldest(&self, queue: &mut Queue) -> bool {
        let Some(retired) = queue.oldest_completed() else { return false };
        let is_kept = self.remember(&retired);
        if is_kept {
            queue.retire(&retired.key);
        }
        is_kept
    }

    /// Warns when the events that cannot go take up 80 % of the room, and again once they have been below 70 %.
    fn watch_filling(&self, queue: &mut Queue) {
        let (open, capacity) = (queue.open(), self.capacity);
        if !queue.filling && open >= capacity - capacity / 5 {
            queue.filling = true;
            telemetry::inbox_filling(open, capacity);
        } else if queue.filling && open < capacity - capacity / 10 * 3 {
            queue.filling = false;
        }
    }
}
