//! The verbs of a store on the keys of one shard.

use std::time::Duration;

use super::claims::{Running, RunningClaims};
use super::completed::Completed;
use super::hash::{BoundedMap, KeyHash};
use super::log::{Record, Ticks, tag};
use crate::store::{Claim, ClaimToken, Completion, Hold, StoreError, StoreErrorKind};

/// How many expired records a new claim clears away: two for the one it adds, so that they cannot pile up.
const DROPS_PER_CLAIM: usize = 2;

/// How many released events a shard remembers the attempts of.
const RELEASED: usize = 256;

/// How many events a shard may hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Running and completed events.
    pub(super) capacity: usize,
    /// With this many it counts as filling up.
    pub(super) high: usize,
    /// Below this many it no longer does.
    pub(super) low: usize,
    /// How long a completed record, and a lapsed claim, is safe from eviction.
    pub(super) min_retention: Duration,
}

/// A crossing of [`Limits::high`] upwards or [`Limits::low`] downwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Crossing {
    Up,
    Down,
}

/// A part of the store, under a lock of its own. A key is either running or completed, never both.
///
/// Every `now` is the time since the store was built.
#[derive(Debug)]
pub(super) struct Shard {
    limits: Limits,
    running: RunningClaims,
    completed: Completed,
    /// How often the lately released events were tried: a courtesy to handlers that look at the attempt.
    released: BoundedMap<u32>,
    pub(super) evicted: u64,
    filling: bool,
}

impl Shard {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            running: RunningClaims::default(),
            completed: Completed::default(),
            released: BoundedMap::new(RELEASED),
            evicted: 0,
            filling: false,
        }
    }

    /// Answers `claim`, which is stored if it is fresh, with the number of its attempt.
    pub(super) fn claim(&mut self, claim: Running, now: Duration) -> Result<Claim, StoreError> {
        if let Some(held) = self.running.get(&claim.key).copied() {
            return Ok(self.claim_running(&held, claim, now));
        }
        if let Some(record) = self.completed.recall(&claim.key, Ticks::floor(now)) {
            return Ok(Claim::Completed { same_body: record.fingerprint == claim.fingerprint });
        }
        self.claim_new(claim, now)
    }

    /// Answers `claim` without storing it; `None`, if it would be fresh.
    pub(super) fn peek(&self, claim: &Running, now: Duration) -> Option<Claim> {
        if let Some(held) = self.running.get(&claim.key) {
            let is_free = held.token == claim.token || held.lease_until <= now;
            return (!is_free).then_some(Claim::InFlight { same_body: held.fingerprint == claim.fingerprint });
        }
        let record = self.completed.get(&claim.key, Ticks::floor(now))?;
        Some(Claim::Completed { same_body: record.fingerprint == claim.fingerprint })
    }

    /// Ends a claim, whichever token holds it.
    pub(super) fn vacate(&mut self, key: &KeyHash) {
        if let Some(token) = self.running.get(key).map(|held| held.token) {
            self.running.remove(key, token);
        }
    }

    /// Adds the record of an event that was completed in the queue. Returns `false` if there is no room for it.
    pub(super) fn remember(&mut self, record: Record, now: Duration) -> bool {
        let key = record.key;
        if self.running.get(&key).is_some() || self.completed.recall(&key, Ticks::floor(now)).is_some() {
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
        match self.running.get(key).copied() {
            Some(held) if held.token == token => {
                self.running.replace(Running { lease_until: now.saturating_add(lease), ..held });
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
        if let Some(claim) = self.running.remove(key, token) {
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
        let Some(claim) = self.running.remove(key, token) else { return Hold::Lost };
        self.released.insert(*key, claim.attempt);
        Hold::Held
    }

    pub(super) fn running(&self) -> usize {
        self.running.len()
    }

    /// The number of completed events that are remembered.
    pub(super) fn remembered(&self, now: Duration) -> usize {
        self.completed.remembered(Ticks::floor(now))
    }

    pub(super) fn failure(&self, key: &KeyHash, now: Duration) -> Option<&str> {
        self.completed.failure(key, Ticks::floor(now))
    }

    /// The number of events that take up room.
    pub(super) fn used(&self) -> usize {
        self.running.len() + self.completed.len()
    }

    /// Returns the limit that was crossed since the last call, if any.
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

    fn claim_running(&mut self, held: &Running, claim: Running, now: Duration) -> Claim {
        let is_own = held.token == claim.token;
        if !is_own && now < held.lease_until {
            return Claim::InFlight { same_body: held.fingerprint == claim.fingerprint };
        }
        let attempt = if is_own { held.attempt } else { held.attempt.saturating_add(1) };
        self.running.replace(Running { attempt, ..claim });
        Claim::Fresh { attempt: Some(attempt) }
    }

    fn claim_new(&mut self, claim: Running, now: Duration) -> Result<Claim, StoreError> {
        self.make_room(now);
        if self.is_full() {
            return Err(StoreError::new(StoreErrorKind::Full));
        }
        let attempt = self.released.remove(&claim.key).unwrap_or(0).saturating_add(1);
        self.running.insert(Running { attempt, ..claim });
        Ok(Claim::Fresh { attempt: Some(attempt) })
    }

    /// Drops expired records and, in a full shard, the record or the claims that can go at the least loss.
    fn make_room(&mut self, now: Duration) {
        let tick = Ticks::floor(now);
        self.completed.drop_expired(DROPS_PER_CLAIM, tick);
        // Expired records must cause neither a warning nor an eviction.
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
            // Neither their holder nor their sender came back for these claims.
            self.running.drop_lapsed(limit, |claim| self.released.insert(claim.key, claim.attempt));
        }
    }

    fn is_full(&self) -> bool {
        self.used() >= self.limits.capacity
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::KeyHasher;
    use super::*;
    use crate::EventKey;

    const LEASE: Duration = Duration::from_secs(30);

    struct Fixture {
        shard: Shard,
        hasher: KeyHasher,
    }

    impl Fixture {
        fn new(capacity: usize) -> Self {
            let (high, low) = (capacity * 8 / 10, capacity * 7 / 10);
            let limits = Limits { capacity, high, low, min_retention: Duration::from_secs(3600) };
            Self { shard: Shard::new(limits), hasher: KeyHasher::new() }
        }

        fn complete(&mut self, id: usize, retention: Duration, now: Duration) {
            let key = self.hasher.hash(&EventKey::new("/hook", None, &id.to_string()));
            let token = ClaimToken::random();
            let claim = Running { key, token, lease_until: now + LEASE, fingerprint: 0, attempt: 1 };
            assert!(matches!(self.shard.claim(claim, now), Ok(Claim::Fresh { attempt: Some(1) })));
            let done = Completion::succeeded("200", retention);
            assert_eq!(self.shard.complete(&key, token, &done, now), Hold::Held);
        }
    }

    #[test]
    fn filling_up_is_reported_once_until_the_shard_has_emptied() {
        let mut fixture = Fixture::new(100);
        let (minute, mut reported) = (Duration::from_secs(60), Vec::new());
        for id in 0..100 {
            fixture.complete(id, minute, Duration::ZERO);
            reported.extend(fixture.shard.crossing().map(|crossing| (id, crossing)));
        }
        // Two expired records go for each new one: used falls by one a time.
        for id in 100..200 {
            fixture.complete(id, minute, minute);
            reported.extend(fixture.shard.crossing().map(|crossing| (id, crossing)));
        }
        assert_eq!(reported, [(79, Crossing::Up), (130, Crossing::Down), (179, Crossing::Up)]);
    }

    #[test]
    fn expired_records_neither_warn_nor_count_as_evicted() {
        let mut fixture = Fixture::new(100);
        fixture.complete(0, Duration::MAX, Duration::ZERO);
        for id in 1..1_000 {
            let now = Duration::from_secs(id as u64);
            fixture.complete(id, Duration::from_secs(10), now);
            assert_eq!(fixture.shard.crossing(), None);
        }
        assert_eq!(fixture.shard.evicted, 0);
        assert!(fixture.shard.used() < 80);
    }
}
