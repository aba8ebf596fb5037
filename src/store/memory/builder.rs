use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::events::Events;
use super::shard::Limits;
use super::store::MemoryStore;
use crate::clock::{Clock, SystemClock};

/// How many events one shard should have room for at least. A store with less room than two of these has one lock.
const SHARD_SIZE: usize = 4_096;
const MAX_SHARDS: usize = 16;
/// Positions in a shard's log are 32 bits wide and must not meet themselves after wrapping around.
const MAX_SHARD_SIZE: usize = (u32::MAX / 4) as usize;

/// Configures a [`MemoryStore`].
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::store::MemoryStore;
///
/// let store = MemoryStore::builder().capacity(50_000).min_retention(Duration::from_secs(600)).build();
/// assert_eq!(store.stats().capacity, 50_000);
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct MemoryStoreBuilder {
    capacity: usize,
    min_retention: Duration,
    completed_bodies: Duration,
    clock: Arc<dyn Clock>,
}

impl MemoryStoreBuilder {
    fn new() -> Self {
        let (min_retention, completed_bodies) = (Duration::from_secs(3600), Duration::MAX);
        Self { capacity: 1_000_000, min_retention, completed_bodies, clock: Arc::new(SystemClock) }
    }

    /// How many events are remembered, running and completed together; 1,000,000 by default, at about 45 bytes each
    /// once they are there. Zero is taken for one.
    ///
    /// A [queue](crate::queue::Queue) has room for as many events again, which are kept whole, and for the last
    /// sequences of as many resources, at about 100 bytes each: choose it by the size of the bodies.
    ///
    /// Below 8,192 the number is exact. Above, it is shared out over up to 16 shards, each with some headroom since
    /// keys do not spread evenly: that many events do fit, and up to a tenth more may.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.capacity = capacity.max(1);
        self
    }

    /// How long a completed event is safe from being evicted when the store is full; one hour by default.
    ///
    /// It should cover the quick retries of the senders, and twice the scheme's tolerance: an event that is forgotten
    /// runs again if its sender repeats it, or if an attacker replays it while its signature is still accepted. When no
    /// event is old enough to go, new events are refused with
    /// [`StoreErrorKind::Full`](crate::store::StoreErrorKind::Full), which the sender sees as a 503.
    pub fn min_retention(mut self, min_retention: Duration) -> Self {
        self.min_retention = min_retention;
        self
    }

    /// How long the bodies of a queue's completed events are kept, so that operators can look at them and requeue them;
    /// by default as long as the record, at the longest. Afterwards only the record is kept, which still tells
    /// duplicates.
    ///
    /// With zero a body is dropped as soon as its event is completed or discarded. Otherwise it goes with the first
    /// call of the store after its time: a worker that looks for events is one. Bodies of waiting, running and dead
    /// events stay.
    pub fn keep_completed_bodies(mut self, time: Duration) -> Self {
        self.completed_bodies = time;
        self
    }

    /// The clock. Leases and retention are by [`Clock::monotonic`], and the times that the queue shows are by
    /// [`Clock::now`].
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the store, empty. Memory is taken as events come.
    #[must_use]
    pub fn build(self) -> MemoryStore {
        let shards = shard_count(self.capacity);
        let limits = limits(self.capacity, shards, self.min_retention);
        let queue = Events::new(self.capacity, self.completed_bodies);
        MemoryStore::from_parts(self.clock, self.capacity, shards, limits, queue)
    }
}

impl MemoryStore {
    /// Configures a store with another capacity, retention floor or clock.
    pub fn builder() -> MemoryStoreBuilder {
        MemoryStoreBuilder::new()
    }
}

impl fmt::Debug for MemoryStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStoreBuilder")
            .field("capacity", &self.capacity)
            .field("min_retention", &self.min_retention)
            .field("completed_bodies", &self.completed_bodies)
            .finish_non_exhaustive()
    }
}

/// Returns a power of two.
fn shard_count(capacity: usize) -> usize {
    let wanted = (capacity / SHARD_SIZE).clamp(1, MAX_SHARDS);
    1 << wanted.ilog2()
}

fn limits(capacity: usize, shards: usize, min_retention: Duration) -> Limits {
    let share = capacity.div_ceil(shards).min(MAX_SHARD_SIZE);
    // The load of a shard deviates from the mean by about the root of the mean. Six times that is enough.
    let headroom = if shards == 1 { 0 } else { 6 * share.isqrt() };
    Limits { capacity: share + headroom, high: share - share / 5, low: share - share * 3 / 10, min_retention }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_capacities_are_exact() {
        for capacity in [1, 2, 10, 4_096, 8_191] {
            assert_eq!(shard_count(capacity), 1);
            assert_eq!(limits(capacity, 1, Duration::ZERO).capacity, capacity);
        }
    }

    #[test]
    fn large_capacities_fit_with_at_most_a_tenth_to_spare() {
        for capacity in [8_192, 10_000, 65_537, 262_144, 1_000_000, 50_000_000] {
            let shards = shard_count(capacity);
            let total = limits(capacity, shards, Duration::ZERO).capacity * shards;
            assert!(shards > 1 && shards.is_power_of_two() && shards <= MAX_SHARDS);
            assert!(total >= capacity && total <= capacity + capacity / 10, "{capacity} became {total}");
        }
    }

    #[test]
    fn absurd_capacities_build() {
        assert_eq!(MemoryStoreBuilder::new().capacity(0).build().stats().capacity, 1);
        assert_eq!(MemoryStoreBuilder::new().capacity(usize::MAX).build().stats().capacity, usize::MAX);
    }

    #[test]
    fn marks_are_at_eighty_and_seventy_per_cent() {
        let limits = limits(1_000, 1, Duration::ZERO);
        assert_eq!((limits.high, limits.low), (800, 700));
    }
}
