//! The verbs, on the keys of one shard and under its lock.

use std::time::Duration;

use super::completed::Completed;
use super::hash::KeyHash;
use super::live::{Live, Running};
use super::record::{Record, tag};
use super::released::Released;
use super::ticks::Ticks;
use crate::store::{Claim, ClaimToken, Completion, Hold, StoreError, StoreErrorKind};

/// How many expired records a new claim clears away: two for the one it adds, so that they cannot pile up.
const DROPS_PER_CLAIM: usize = 2;

/// What a shard may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How many events, running and completed.
    pub(super) capacity: usize,
    /// From how many on it counts as filling up.
    pub(super) high: usize,
    /// Below how many it no longer does.
    pub(super) low: usize,
    /// How long a completed record, and a lapsed claim, is safe from eviction.
    pub(super) min_retention: Duration,
}

/// What a claim asks of a shard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bid {
    pub(super) key: KeyHash,
    pub(super) token: ClaimToken,
    pub(super) lease: Duration,
    /// Cut short by the store's hasher.
    pub(super) fingerprint: u32,
}

/// A crossing of [`Limits::high`] upwards or [`Limits::low`] downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    Up,
    Down,
}

/// A part of the store. A key is either live or completed, never both.
///
/// Every `now` is the time since the store was built.
#[derive(Debug)]
pub(super) struct Shard {
    limits: Limits,
    live: Live,
    completed: Completed,
    released: Released,
    evicted: u64,
    filling: bool,
}

impl Shard {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            live: Live::default(),
            completed: Completed::default(),
            released: Released::default(),
            evicted: 0,
            filling: false,
        }
    }

    pub(super) fn claim(&mut self, bid: &Bid, now: Duration) -> Result<Claim, StoreError> {
        if let Some(held) = self.live.get(&bid.key).copied() {
            return Ok(self.claim_running(&held, bid, now));
        }
        if let Some(record) = self.completed.recall(&bid.key, Ticks::floor(now)) {
            return Ok(Claim::Completed { same_body: record.fingerprint == bid.fingerprint });
        }
        self.claim_new(bid, now)
    }

    /// The answer to a claim that may not have its event, without claiming it.
    pub(super) fn look(&self, bid: &Bid, now: Duration) -> Option<Claim> {
        if let Some(held) = self.live.get(&bid.key) {
            let is_free = held.token == bid.token || held.lease_end <= now;
            return (!is_free).then_some(Claim::InFlight { same_body: held.fingerprint == bid.fingerprint });
        }
        let record = self.completed.get(&bid.key, Ticks::floor(now))?;
        Some(Claim::Completed { same_body: record.fingerprint == bid.fingerprint })
    }

    /// Ends a claim, whoever holds it.
    pub(super) fn vacate(&mut self, key: &KeyHash) {
        if let Some(token) = self.live.get(key).map(|held| held.token) {
            self.live.remove(key, token);
        }
    }

    /// Adds a record of an event that was completed elsewhere. `false` if there is no room for it.
    pub(super) fn remember(&mut self, record: Record, now: Duration) -> bool {
        let key = record.key;
        if self.live.get(&key).is_some() || self.completed.recall(&key, Ticks::floor(now)).is_some() {
            return true;
        }
        self.make_room(now);
        if self.is_full() {
            return false;
        }
        self.completed.insert(record, None);
        true
    }

    pub(super) fn renew(&mut self, key: &KeyHash, token: ClaimToken, lease: Duration, now: Duration) -> Hold {
        match self.live.get(key).copied() {
            Some(held) if held.token == token => {
                self.live.replace(Running { lease_end: now.saturating_add(lease), ..held });
                Hold::Held
            }
            _ => Hold::Lost,
        }
    }

    pub(super) fn complete(
        &mut self,
        key: &KeyHash,
        token: ClaimToken,
        completion: &Completion<'_>,
        now: Duration,
    ) -> Hold {
        if let Some(claim) = self.live.remove(key, token) {
            let record = Record::new(*key, claim.fingerprint, token, now, completion.retention);
            self.completed.insert(record, completion.failed.then_some(completion.summary));
            return Hold::Held;
        }
        // The reply to an earlier completion may have been lost.
        match self.completed.get(key, Ticks::floor(now)) {
            Some(record) if record.tag == tag(token) => Hold::Held,
            _ => Hold::Lost,
        }
    }

    pub(super) fn release(&mut self, key: &KeyHash, token: ClaimToken) -> Hold {
        let Some(claim) = self.live.remove(key, token) else { return Hold::Lost };
        self.released.remember(*key, claim.attempt);
        Hold::Held
    }

    pub(super) fn running(&self) -> usize {
        self.live.len()
    }

    /// How many completed events are remembered.
    pub(super) fn remembered(&self, now: Duration) -> usize {
        self.completed.remembered(Ticks::floor(now))
    }

    pub(super) fn failure(&self, key: &KeyHash, now: Duration) -> Option<&str> {
        self.completed.failure(key, Ticks::floor(now))
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// How many events take up room.
    pub(super) fn used(&self) -> usize {
        self.live.len() + self.completed.len()
    }

    /// Whether a mark was crossed since this was last asked.
    pub(super) fn crossing(&mut self) -> Option<Crossing> {
        let used = self.used();
        if !self.filling && used >= self.limits.high {
            self.filling = true;
            return Some(Crossing::Up);
        }
        if self.filling && used < self.limits.low {
            self.filling = false;
            return Some(Crossing::Down);
        }
        None
    }

    fn claim_running(&mut self, held: &Running, bid: &Bid, now: Duration) -> Claim {
        let own = held.token == bid.token;
        if !own && now < held.lease_end {
            return Claim::InFlight { same_body: held.fingerprint == bid.fingerprint };
        }
        let attempt = if own { held.attempt } else { held.attempt.saturating_add(1) };
        self.live.replace(bid.running(attempt, now));
        Claim::Fresh { attempt: Some(attempt) }
    }

    fn claim_new(&mut self, bid: &Bid, now: Duration) -> Result<Claim, StoreError> {
        self.make_room(now);
        if self.is_full() {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        let attempt = self.released.take(&bid.key).saturating_add(1);
        self.live.insert(bid.running(attempt, now));
        Ok(Claim::Fresh { attempt: Some(attempt) })
    }

    /// Drops what is over and, in a full shard, what can go at the least loss.
    fn make_room(&mut self, now: Duration) {
        let tick = Ticks::floor(now);
        self.completed.drop_expired(DROPS_PER_CLAIM, tick);
        // Neither a warning nor an eviction on account of records that nobody needs.
        let warns_next = !self.filling && self.used() + 1 >= self.limits.high;
        if warns_next || self.is_full() {
            self.completed.drop_all_expired(tick);
        }
        if self.is_full() {
            self.evict(now);
        }
    }

    fn evict(&mut self, now: Duration) {
        let safe = self.limits.min_retention;
        if self.completed.evict(Ticks::ceil(safe), Ticks::floor(now)) {
            self.evicted += 1;
        } else if let Some(limit) = now.checked_sub(safe) {
            // Nobody came back for these, neither their holder nor their sender.
            self.live.drop_lapsed(limit, |claim| self.released.remember(claim.key, claim.attempt));
        }
    }

    fn is_full(&self) -> bool {
        self.used() >= self.limits.capacity
    }
}

impl Bid {
    fn running(&self, attempt: u32, now: Duration) -> Running {
        Running {
            key: self.key,
            token: self.token,
            lease_end: now.saturating_add(self.lease),
            fingerprint: self.fingerprint,
            attempt,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::KeyHasher;
    use super::*;
    use crate::EventKey;

    const LEASE: Duration = Duration::from_secs(30);

    struct Bench {
        shard: Shard,
        hasher: KeyHasher,
    }

    impl Bench {
        fn new(capacity: usize) -> Self {
            let (high, low) = (capacity * 8 / 10, capacity * 7 / 10);
            let limits = Limits { capacity, high, low, min_retention: Duration::from_secs(3600) };
            Self { shard: Shard::new(limits), hasher: KeyHasher::new() }
        }

        fn complete(&mut self, id: usize, retention: Duration, now: Duration) {
            let key = self.hasher.hash(&EventKey::new("/hook", None, &id.to_string()));
            let token = ClaimToken::random();
            let bid = Bid { key, token, lease: LEASE, fingerprint: 0 };
            assert!(matches!(self.shard.claim(&bid, now), Ok(Claim::Fresh { attempt: Some(1) })));
            let done = Completion::succeeded("200", retention);
            assert_eq!(self.shard.complete(&key, token, &done, now), Hold::Held);
        }
    }

    #[test]
    fn filling_up_is_told_once_until_it_has_emptied() {
        let mut bench = Bench::new(100);
        let (minute, mut told) = (Duration::from_secs(60), Vec::new());
        for id in 0..100 {
            bench.complete(id, minute, Duration::ZERO);
            told.extend(bench.shard.crossing().map(|crossing| (id, crossing)));
        }
        // Two expired records go for each new one: used falls by one a time.
        for id in 100..200 {
            bench.complete(id, minute, minute);
            told.extend(bench.shard.crossing().map(|crossing| (id, crossing)));
        }
        assert_eq!(told, [(79, Crossing::Up), (130, Crossing::Down), (179, Crossing::Up)]);
    }

    #[test]
    fn expired_records_neither_warn_nor_count_as_evicted() {
        let mut bench = Bench::new(100);
        bench.complete(0, Duration::MAX, Duration::ZERO);
        for id in 1..1_000 {
            let now = Duration::from_secs(id as u64);
            bench.complete(id, Duration::from_secs(10), now);
            assert_eq!(bench.shard.crossing(), None);
        }
        assert_eq!(bench.shard.evicted(), 0);
        assert!(bench.shard.used() < 80);
    }
}
