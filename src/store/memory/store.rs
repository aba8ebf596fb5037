use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::MemoryStoreBuilder;
use super::hash::{KeyHash, KeyHasher};
use super::queue::Queue;
use super::shard::{Bid, Crossing, Limits, Shard};
use crate::clock::Clock;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store, StoreError};
use crate::{EventKey, telemetry};

/// Remembers events in this process's memory: nothing to install, gone with the process.
///
/// It is bounded. When it is full the oldest completed events are forgotten first, but none younger than
/// [`min_retention`](MemoryStoreBuilder::min_retention) unless its own retention is over, and no live claim; if nothing
/// can go, new events are refused with [`StoreErrorKind::Full`](crate::store::StoreErrorKind::Full). A claim that lapsed
/// more than `min_retention` ago without anybody coming back to it is no longer live. From 80 % on there is a warning.
///
/// Of an event's id and body it keeps hashes: 128 bits of the key, 32 of the fingerprint that `same_body` compares, and
/// 32 of the token that completed it. Retention is kept to a tenth of a second, rounded up, and ends after 13 years at the
/// latest, reckoned from when the store was built; leases are exact. Wall-clock jumps change neither.
///
/// Clones share one memory.
#[derive(Clone)]
pub struct MemoryStore {
    pub(super) shared: Arc<Shared>,
}

/// How full a [`MemoryStore`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Claims that are neither completed nor released, lapsed ones included.
    pub running: usize,
    /// Completed events that are still recognised.
    pub completed: usize,
    /// How many of both there is room for.
    pub capacity: usize,
    /// Completed events forgotten before their retention was over, to make room. If this grows, duplicates may run:
    /// raise the capacity or shorten the retention.
    pub evicted: u64,
}

pub(super) struct Shared {
    shards: Box<[Mutex<Shard>]>,
    hasher: KeyHasher,
    pub(super) clock: Arc<dyn Clock>,
    origin: Instant,
    pub(super) capacity: usize,
    /// How many shards are above their high mark.
    filling: AtomicUsize,
    /// Whether anything was ever accepted: without an inbox nothing is paid for one.
    queues: AtomicBool,
    /// Locked before any shard.
    pub(super) queue: Mutex<Queue>,
    pub(super) arrived: Notify,
}

impl MemoryStore {
    /// A store with room for a million events.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A store with another capacity, retention floor or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }

    /// How many events are remembered, running and completed.
    #[must_use]
    pub fn len(&self) -> usize {
        let stats = self.stats();
        stats.running + stats.completed
    }

    /// Whether no event is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How full the store is. Shards are looked at one after the other, so under load the sum is approximate.
    #[must_use]
    pub fn stats(&self) -> MemoryStats {
        let now = self.shared.now();
        let mut stats = MemoryStats { running: 0, completed: 0, capacity: self.shared.capacity, evicted: 0 };
        for shard in &self.shared.shards {
            let shard = lock(shard);
            stats.running += shard.running();
            stats.completed += shard.remembered(now);
            stats.evicted += shard.evicted();
        }
        stats
    }

    /// Why `key` was given up, if it was [completed as failed](Completion::failed) and is still remembered.
    #[must_use]
    pub fn failure(&self, key: &EventKey) -> Option<String> {
        let hash = self.shared.hasher.hash(key);
        let now = self.shared.now();
        lock(self.shared.shard(&hash)).failure(&hash, now).map(str::to_owned)
    }

    /// Builds a store of `shards`, a power of two, with `limits` each.
    pub(super) fn from_parts(clock: Arc<dyn Clock>, capacity: usize, shards: usize, limits: Limits) -> Self {
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
            queue: Mutex::default(),
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
    async fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        if !self.shared.has_queue() {
            let answer = self.shared.claim(request);
            // Nearly always. Otherwise the very first event was accepted just now, perhaps this one.
            if !self.shared.has_queue() || !matches!(answer, Ok(Claim::Fresh { .. })) {
                return answer;
            }
            let _ = self.shared.release(request.key, request.token);
        }
        // Kept locked: what is claimed here must not be accepted meanwhile.
        let mut queue = self.shared.queue();
        match queue.answer(request, self.shared.both()) {
            Some(answer) => Ok(answer),
            None => self.shared.claim(request),
        }
    }

    async fn renew(&self, claim: &ClaimRequest<'_>) -> Result<Hold, StoreError> {
        if let Some(hold) = self.shared.settle_queued(|queue, now| queue.renew(claim, now)) {
            return Ok(hold);
        }
        Ok(self.shared.on_shard(claim.key, |shard, key, now| shard.renew(&key, claim.token, claim.lease, now)))
    }

    async fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Result<Hold, StoreError> {
        if let Some(hold) = self.shared.settle_queued(|queue, now| queue.complete(claim, completion, now)) {
            return Ok(hold);
        }
        Ok(self.shared.complete(claim, completion))
    }

    async fn release(&self, key: &EventKey, token: ClaimToken) -> Result<Hold, StoreError> {
        if let Some(hold) = self.shared.settle_queued(|queue, _| queue.release(key, token)) {
            return Ok(hold);
        }
        Ok(self.shared.release(key, token))
    }
}

impl Shared {
    pub(super) fn claim(&self, request: &ClaimRequest<'_>) -> Result<Claim, StoreError> {
        self.on_shard(request.key, |shard, key, now| {
            let fingerprint = self.hasher.short(request.fingerprint);
            let bid = Bid { key, token: request.token, lease: request.lease, fingerprint };
            shard.claim(&bid, now)
        })
    }

    pub(super) fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Hold {
        self.on_shard(claim.key, |shard, key, now| shard.complete(&key, claim.token, completion, now))
    }

    pub(super) fn release(&self, key: &EventKey, token: ClaimToken) -> Hold {
        self.on_shard(key, |shard, key, _| shard.release(&key, token))
    }

    pub(super) fn has_queue(&self) -> bool {
        self.queues.load(Ordering::SeqCst)
    }

    /// The queue, which is there from now on.
    pub(super) fn open_queue(&self) -> MutexGuard<'_, Queue> {
        let queue = self.queue();
        self.queues.store(true, Ordering::SeqCst);
        queue
    }

    /// Runs one verb under the lock of the key's shard, and no longer than that.
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

    /// Warns when the first shard fills up; all have to empty before there is another warning.
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

/// A panic under the lock would be a bug in this module; refusing every later delivery would make it worse.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
