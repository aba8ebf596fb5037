use std::future::Future;
use std::pin::Pin;
use std::sync::MutexGuard;

use super::entry::Now;
use super::events::Events;
use super::store::{MemoryStore, Shared};
use crate::lock::lock;
use crate::store::queue::{
    Change, Changed, Filter, LeaseRequest, Leased, Page, Queue, QueueCounts, QueuedEvent, StoredRequest,
};
use crate::store::{Claim, ClaimRequest, Hold, StoreError, StoreErrorKind, StoreFuture};
use crate::{EventKey, telemetry};

/// Events are kept whole, in this process's memory, and are gone with it: for tests and for events that may be lost.
///
/// There is room for as many events as the store's [capacity](crate::store::MemoryStoreBuilder::capacity) says.
/// Waiting, running and dead events stay. Of completed events the last 10,000 are kept whole, or fewer where others
/// need the room; of older ones only the record is, beside those of inline deliveries: it still tells duplicates, but
/// the event is not listed and cannot be requeued any more.
/// [`MemoryStats::retired`](crate::store::MemoryStats::retired) counts these events. If no completed event can go, new
/// ones are refused with [`StoreErrorKind::Full`].
///
/// The last [sequence](crate::queue::Order::sequence) of a resource is kept while events of the resource wait or run,
/// and afterwards for as many resources as the capacity says; the resource whose last event ended the longest ago is
/// forgotten first, and [counted](crate::store::MemoryStats::sequences_forgotten). An event of such a resource that
/// arrives late, with a sequence that was applied long ago, is run instead of skipped.
impl Queue for MemoryStore {
    fn enqueue<'a>(&'a self, claim: &'a ClaimRequest<'a>, request: &'a StoredRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let shared = &*self.shared;
            let (mut queue, now) = shared.open_queue();
            if let Some(answer) = shared.answer(&queue, claim) {
                return Ok(answer);
            }
            while queue.len() >= shared.capacity {
                if !shared.retire_oldest(&mut queue) {
                    return Err(StoreError::new(StoreErrorKind::Full));
                }
            }
            // A lapsed inline claim of the event ends here: a worker is to run the event.
            shared.vacate(claim.key);
            queue.insert(claim, request, now);
            shared.watch_filling(&mut queue);
            drop(queue);
            shared.arrived.notify_waiters();
            Ok(Claim::Fresh { attempt: None })
        })
    }

    fn peek<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Option<Claim>> {
        Box::pin(async move {
            let (queue, _) = self.shared.queue();
            Ok(self.shared.answer(&queue, claim))
        })
    }

    fn lease<'a>(&'a self, request: &'a LeaseRequest<'a>) -> StoreFuture<'a, Vec<Leased>> {
        Box::pin(async move {
            // This future awaits nothing: a caller that drops it has either leased nothing or been answered.
            let (mut queue, now) = self.shared.queue();
            Ok(queue.lease(request, now))
        })
    }

    fn start<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(
            async move { Ok(self.shared.settle_queued(|queue, now| queue.start(claim, now)).unwrap_or(Hold::Lost)) },
        )
    }

    fn wake(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.shared.arrived.notified())
    }

    fn waiting(&self, up_to: u64) -> StoreFuture<'_, u64> {
        Box::pin(async move { Ok(self.shared.queue().0.waiting(up_to)) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, page: &'a Page) -> StoreFuture<'a, Vec<QueuedEvent>> {
        Box::pin(async move { Ok(self.shared.queue().0.list(filter, page)) })
    }

    fn get<'a>(&'a self, key: &'a EventKey) -> StoreFuture<'a, Option<QueuedEvent>> {
        Box::pin(async move { Ok(self.shared.queue().0.get(key)) })
    }

    fn change<'a>(&'a self, filter: &'a Filter, change: Change) -> StoreFuture<'a, Changed> {
        Box::pin(async move {
            let (mut queue, now) = self.shared.queue();
            let changed = queue.change(filter, change, now);
            self.shared.tidy(&mut queue, now);
            drop(queue);
            self.shared.arrived.notify_waiters();
            Ok(changed)
        })
    }

    fn counts(&self) -> StoreFuture<'_, QueueCounts> {
        Box::pin(async move {
            let (mut queue, now) = self.shared.queue();
            Ok(queue.counts(now))
        })
    }
}

impl Shared {
    /// Locks the queue, without the events that have expired by now.
    pub(super) fn queue(&self) -> (MutexGuard<'_, Events>, Now) {
        let mut queue = lock(&self.queue);
        let now = Now { elapsed: self.now(), wall: self.clock.now() };
        queue.expire(now);
        (queue, now)
    }

    /// Runs a verb on a queued event; `None` if the queue does not have the event.
    pub(super) fn settle_queued(&self, verb: impl FnOnce(&mut Events, Now) -> Option<Hold>) -> Option<Hold> {
        if !self.has_queue() {
            return None;
        }
        let (mut queue, now) = self.queue();
        let hold = verb(&mut queue, now)?;
        self.tidy(&mut queue, now);
        drop(queue);
        // The next event of its order may be due now.
        self.arrived.notify_waiters();
        Some(hold)
    }

    /// Answers an enqueue of an event that the store knows, queued or inline.
    fn answer(&self, queue: &Events, claim: &ClaimRequest<'_>) -> Option<Claim> {
        queue.answer(claim).or_else(|| self.peek(claim))
    }

    /// Drops what is not kept after events have ended.
    fn tidy(&self, queue: &mut Events, now: Now) {
        queue.expire(now);
        while queue.has_surplus() && self.retire_oldest(queue) {}
        self.watch_filling(queue);
    }

    /// Keeps only the record of the event that was completed the longest ago. Returns `false` if there is no such
    /// event, or no room for the record: then the event stays as it is.
    fn retire_oldest(&self, queue: &mut Events) -> bool {
        let Some(entry) = queue.oldest_completed() else { return false };
        let (key, is_kept) = (entry.event.key.clone(), self.remember(entry));
        if is_kept {
            queue.retire(&key);
        }
        is_kept
    }

    /// Warns when the events that cannot go take up 80 % of the room, and again once they have been below 70 %.
    fn watch_filling(&self, queue: &mut Events) {
        let (open, capacity) = (queue.open(), self.capacity);
        if !queue.is_filling && open >= capacity - capacity / 5 {
            queue.is_filling = true;
            telemetry::inbox_filling(open, capacity);
        } else if queue.is_filling && open < capacity - capacity / 10 * 3 {
            queue.is_filling = false;
        }
    }
}
