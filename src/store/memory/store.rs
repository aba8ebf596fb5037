use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::claims::Running;
use super::entry::{Entry, Now};
use super::events::Events;
use super::hash::{KeyHash, KeyHasher};
use super::log::Record;
use super::shard::{Crossing, Limits, Shard};
use crate::clock::Clock;
use crate::lock::lock;
use crate::store::{Claim, ClaimRequest, ClaimToken, Ending, Hold, Store, StoreError, StoreFuture};
#[cfg(doc)]
use crate::store::{Completion, MemoryStoreBuilder};
use crate::{EventKey, telemetry};

/// Remembers events in this process's memory: nothing to install, gone with the process.
///
/// It is bounded by its [capacity](MemoryStoreBuilder::capacity). When it is full the oldest completed events are
/// forgotten first, but none younger than [`min_retention`](MemoryStoreBuilder::min_retention) unless its own retention
/// is over, and no live claim; if no event can go, new events are refused with
/// [`StoreErrorKind::Full`](crate::store::StoreErrorKind::Full). A claim that lapsed more than `min_retention` ago, and
/// to which neither its holder nor its sender came back, is no longer live. From 80 % on there is a warning.
///
/// As a [queue](crate::queue::Queue) it keeps events whole, as many as the capacity says, beside the records. The bound
/// is on their number, not on their size: of bodies of up to 1 MiB each, a capacity of 10,000 may take 10 GiB.
///
/// The store keeps hashes of an event's id and body: 128 bits of the key, 32 of the fingerprint that `same_body`
/// compares, and 32 of the token that completed it. Retention is kept to a tenth of a second, rounded up, and ends
/// after 13 years at the latest, reckoned from when the store was built; leases are exact. Wall-clock jumps change
/// neither.
///
/// Clones share one memory.
#[derive(Clone)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
}

/// How full a [`MemoryStore`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Inline claims that are neither completed nor released, lapsed ones included.
    pub running: usize,
    /// Records of completed events, inline ones and those that left the queue: they are still recognised.
    pub completed: usize,
    /// The room for both, the room for queued events, and the room for [`sequences`](Self::sequences).
    pub capacity: usize,
    /// Completed events forgotten before their retention was over, to make room. If this grows, duplicates may run:
    /// raise the capacity or shorten the retention.
    pub evicted: u64,
    /// Events that the queue keeps whole: waiting, running, dead, and the last ones that were completed.
    pub queued: usize,
    /// Completed events of the queue of which only the record was kept, before their retention was over: they are still
    /// recognised, but not listed, and cannot be requeued.
    pub retired: u64,
    /// Resources without events in the queue whose last [sequence](crate::queue::Order::sequence) is remembered.
    pub sequences: usize,
    /// Sequences forgotten to make room for those of other resources. An older event of such a resource that arrives
    /// late is run instead of skipped: if this grows, and senders are that late, raise the capacity.
    pub sequences_forgotten: u64,
}

pub(super) struct Shared {
    shards: Box<[Mutex<Shard>]>,
    hasher: KeyHasher,
    pub(super) clock: Arc<dyn Clock>,
    origin: Instant,
    pub(super) capacity: usize,
    /// The number of shards that count as filling up.
    filling: AtomicUsize,
    /// Whether an event was ever enqueued: a store that is not used as a queue does not pay for one.
    queues: AtomicBool,
    /// Locked before any shard.
    pub(super) queue: Mutex<Events>,
    pub(super) arrived: Notify,
}

impl MemoryStore {
    /// Creates a store with room for a million events.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// The number of events that are remembered: running, completed, and queued.
    #[must_use]
    pub fn len(&self) -> usize {
        let stats = self.stats();
        stats.running + stats.completed + stats.queued
    }

    /// Whether no event is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says how full the store is. Shards are counted one after the other, so under load the sum is approximate.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let now = self.shared.now();
        let mut stats = MemoryStats { capacity: self.shared.capacity, ..MemoryStats::default() };
        for shard in &self.shared.shards {
            let shard = lock(shard);
            stats.running += shard.running();
            stats.completed += shard.remembered(now);
            stats.evicted += shard.evicted;
        }
        if self.shared.has_queue() {
            let (queue, _) = self.shared.queue();
            (stats.queued, stats.retired) = (queue.len(), queue.retired);
            let sequences = &queue.index.orders.sequences;
            (stats.sequences, stats.sequences_forgotten) = (sequences.len(), sequences.forgotten);
        }
        stats
    }

    /// Returns why `key` was given up, if it was [completed as failed](Completion::failed) and is still remembered.
    #[must_use]
    pub fn failure(&self, key: &EventKey) -> Option<String> {
        let hash = self.shared.hasher.hash(key);
        let now = self.shared.now();
        lock(self.shared.shard(&hash)).failure(&hash, now).map(str::to_owned)
    }

    /// Creates a store of `shards`, a power of two, with `limits` each, and an empty queue.
    pub(super) fn from_parts(
        clock: Arc<dyn Clock>,
        capacity: usize,
        shards: usize,
        limits: Limits,
        queue: Events,
    ) -> Self {
        let shards = (0..shards).map(|_| Mutex::new(Shard::new(limits))).collect();
        let (hasher, origin) = (KeyHasher::new(), clock.monotonic());
        let shared = Shared {
            shards,
            hasher,
            clock,
            origin,
            capacity,
            filling: AtomicUsize::new(0),
            queues: AtomicBool::new(false),
            queue: Mutex::new(queue),
            arrived: Notify::new(),
        };
        Self { shared: Arc::new(shared) }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("capacity", &self.shared.capacity).finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            if !self.shared.has_queue() {
                let answer = self.shared.claim(request);
                // Nearly always so. Otherwise the very first event was enqueued just now, perhaps this one.
                if !self.shared.has_queue() || !matches!(answer, Ok(Claim::Fresh { .. })) {
                    return answer;
                }
                let _ = self.shared.release(request.key, request.token);
            }
            // The queue stays locked: an event that is claimed here must not be enqueued meanwhile.
            let (queue, _) = self.shared.queue();
            match queue.claim(request) {
                Some(answer) => Ok(answer),
                None => self.shared.claim(request),
            }
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            if let Some(hold) = self.shared.settle_queued(|queue, now| queue.renew(claim, now)) {
                return Ok(hold);
            }
            Ok(self.shared.on_shard(claim.key, |shard, key, now| shard.renew(&key, claim.token, claim.lease, now)))
        })
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        Box::pin(async move {
            if let Some(hold) = self.shared.settle_queued(|queue, now| queue.settle(claim, ending, now)) {
                return Ok(hold);
            }
            Ok(match ending {
                Ending::Complete(completion) => self
                    .shared
                    .on_shard(claim.key, |shard, key, now| shard.complete(&key, claim.token, &completion, now)),
                Ending::Release => self.shared.release(claim.key, claim.token),
                Ending::Retry { .. } | Ending::Bury { .. } => Hold::Lost,
            })
        })
    }
}

impl Shared {
    fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        self.on_shard(request.key, |shard, key, now| shard.claim(self.running(key, request, now), now))
    }

    /// Answers a claim without claiming the event; `None`, if the claim would be fresh.
    pub(super) fn peek(&self, request: &ClaimRequest<'_>) -> Option<Claim> {
        self.on_shard(request.key, |shard, key, now| shard.peek(&self.running(key, request, now), now))
    }

    /// Ends an inline claim, whichever token holds it.
    pub(super) fn vacate(&self, key: &EventKey) {
        self.on_shard(key, |shard, key, _| shard.vacate(&key));
    }

    /// Adds the record of an event that was completed in the queue. Returns `false` if there is no room for it.
    pub(super) fn remember(&self, completed: &Entry) -> bool {
        self.on_shard(&completed.event.key, |shard, key, now| {
            let (fingerprint, retention) =
                (self.hasher.short(completed.fingerprint), completed.expires_at.saturating_sub(completed.completed_at));
            shard.remember(Record::new(key, fingerprint, completed.token, completed.completed_at, retention), now)
        })
    }

    /// The claim as a shard keeps it, if this is its first attempt.
    fn running(&self, key: KeyHash, request: &ClaimRequest<'_>, now: Duration) -> Running {
        let (lease_until, fingerprint) = (now.saturating_add(request.lease), self.hasher.short(request.fingerprint));
        Running { key, token: request.token, lease_until, fingerprint, attempt: 1 }
    }

    fn release(&self, key: &EventKey, token: ClaimToken) -> Hold {
        self.on_shard(key, |shard, key, _| shard.release(&key, token))
    }

    pub(super) fn has_queue(&self) -> bool {
        self.queues.load(Ordering::SeqCst)
    }

    /// Locks the queue, which is in use from now on.
    pub(super) fn open_queue(&self) -> (MutexGuard<'_, Events>, Now) {
        let queue = self.queue();
        self.queues.store(true, Ordering::SeqCst);
        queue
    }

    /// Runs one verb under the lock of the key's shard.
    fn on_shard<T>(&self, key: &EventKey, verb: impl FnOnce(&mut Shard, KeyHash, Duration) -> T) -> T {
        let (hash, now) = (self.hasher.hash(key), self.now());
        let mut shard = lock(self.shard(&hash));
        let answer = verb(&mut shard, hash, now);
        let crossing = shard.crossing();
        drop(shard);
        if let Some(crossing) = crossing {
            self.crossed(crossing);
        }
        answer
    }

    fn shard(&self, hash: &KeyHash) -> &Mutex<Shard> {
        &self.shards[hash.shard() as usize & (self.shards.len() - 1)]
    }

    pub(super) fn now(&self) -> Duration {
        self.clock.monotonic().saturating_duration_since(self.origin)
    }

    /// Warns when the first shard fills up. All have to empty before there is another warning.
    fn crossed(&self, crossing: Crossing) {
        match crossing {
            Crossing::Up if self.filling.fetch_add(1, Ordering::Relaxed) == 0 => {
                telemetry::store_filling(self.used(), self.capacity);
            }
            Crossing::Up => {}
            Crossing::Down => {
                self.filling.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn used(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).used()).sum()
    }
}
