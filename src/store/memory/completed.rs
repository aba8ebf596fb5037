//! The completed events of a shard.

use std::collections::HashMap;
use std::mem;

use hashbrown::HashTable;

use super::hash::KeyHash;
use super::log::{Log, Record, SEGMENT, Ticks};

/// The log of completed records, an index into it, and the reasons of the events that were given up.
///
/// Retentions may differ, so records expire in another order than they came in. An expired record that is found inside
/// the log becomes a hole; the log is rewritten once there is a hole for every eight records.
#[derive(Debug)]
pub(super) struct Completed {
    log: Log,
    /// The position of every record that is not a hole, by its key.
    index: HashTable<u32>,
    failures: HashMap<KeyHash, Box<str>>,
    /// No record expires before this.
    first_expiry: Ticks,
}

impl Default for Completed {
    fn default() -> Self {
        Self { log: Log::default(), index: HashTable::new(), failures: HashMap::new(), first_expiry: Ticks::MAX }
    }
}

impl Completed {
    /// The number of records, those that expired unnoticed included.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// The number of records that have not expired.
    pub(super) fn remembered(&self, now: Ticks) -> usize {
        if self.first_expiry > now {
            return self.len();
        }
        self.log.iter().filter(|(_, record)| !record.has_expired(now)).count()
    }

    /// The record of `key`, unless it has expired.
    pub(super) fn get(&self, key: &KeyHash, now: Ticks) -> Option<&Record> {
        let record = self.log.get(self.find(key)?);
        (!record.has_expired(now)).then_some(record)
    }

    /// The record of `key`. An expired one is dropped, and makes room for another.
    pub(super) fn recall(&mut self, key: &KeyHash, now: Ticks) -> Option<&Record> {
        let position = self.find(key)?;
        if self.log.get(position).has_expired(now) {
            self.forget(position);
            self.close_holes();
            return None;
        }
        Some(self.log.get(position))
    }

    /// Why `key` was given up.
    pub(super) fn failure(&self, key: &KeyHash, now: Ticks) -> Option<&str> {
        self.get(key, now).and_then(|record| self.failures.get(&record.key)).map(AsRef::as_ref)
    }

    /// Adds a record for a key that has none.
    pub(super) fn insert(&mut self, record: Record, failure: Option<&str>) {
        self.reserve();
        self.first_expiry = self.first_expiry.min(record.expires());
        let position = self.log.push(record);
        let log = &self.log;
        self.index.insert_unique(record.key.table(), position, |&at| log.get(at).key.table());
        if let Some(reason) = failure {
            self.failures.insert(record.key, reason.into());
        }
    }

    /// Drops up to `count` expired records from the head of the log.
    pub(super) fn drop_expired(&mut self, count: usize, now: Ticks) {
        for _ in 0..count {
            self.drop_holes();
            if self.log.first().is_none_or(|oldest| !oldest.has_expired(now)) {
                return;
            }
            self.drop_oldest();
        }
    }

    /// Drops the oldest record if it was completed at least `age` ago.
    pub(super) fn evict(&mut self, age: Ticks, now: Ticks) -> bool {
        self.drop_holes();
        let may_go = self.log.first().is_some_and(|oldest| oldest.has_reached(age, now));
        if may_go {
            self.drop_oldest();
        }
        may_go
    }

    /// Drops every expired record, wherever it is, if there can be one.
    ///
    /// Walks over the whole log, but not again before another tick has passed.
    pub(super) fn drop_all_expired(&mut self, now: Ticks) {
        if self.first_expiry > now {
            return;
        }
        self.first_expiry = Ticks::MAX;
        let head = self.log.head();
        for position in (0..self.log.len() as u32).map(|offset| head.wrapping_add(offset)) {
            let record = self.log.get(position);
            if !record.has_expired(now) {
                self.first_expiry = self.first_expiry.min(record.expires());
            } else if !record.is_forgotten() {
                self.forget(position);
            }
        }
        self.close_holes();
    }

    fn find(&self, key: &KeyHash) -> Option<u32> {
        self.index.find(key.table(), |&at| self.log.get(at).key == *key).copied()
    }

    fn holes(&self) -> usize {
        self.log.len() - self.index.len()
    }

    fn drop_holes(&mut self) {
        while self.log.first().is_some_and(Record::is_forgotten) {
            self.log.pop();
        }
    }

    /// Drops the record at the head, which is not a hole.
    fn drop_oldest(&mut self) {
        let position = self.log.head();
        if let Some(record) = self.log.pop() {
            self.unlink(&record.key, position);
        }
    }

    /// Turns a record into a hole.
    fn forget(&mut self, position: u32) {
        let record = self.log.get_mut(position);
        record.forget();
        let key = record.key;
        self.unlink(&key, position);
    }

    /// Removes a record from the index, and its reason.
    fn unlink(&mut self, key: &KeyHash, position: u32) {
        if let Ok(entry) = self.index.find_entry(key.table(), |&at| at == position) {
            entry.remove();
        }
        if !self.failures.is_empty() {
            self.failures.remove(key);
        }
    }

    /// Rewrites the log if its holes have become too many.
    fn close_holes(&mut self) {
        if self.holes() <= self.len() / 8 + SEGMENT {
            return;
        }
        let mut old = mem::take(&mut self.log);
        while let Some(record) = old.pop() {
            if !record.is_forgotten() {
                self.log.push(record);
            }
        }
        self.rebuild_index();
    }

    /// Makes room in the index for one more.
    ///
    /// Left to itself the table would double when removed entries fill it up, and would follow every position into the
    /// log in random order.
    fn reserve(&mut self) {
        if self.index.len() < self.index.capacity() {
            return;
        }
        if self.index.len() >= self.index.num_buckets() / 4 * 3 {
            let wanted = (self.index.len() * 2).max(SEGMENT);
            // The old table goes before the new one comes, not after.
            self.index = HashTable::new();
            self.index = HashTable::with_capacity(wanted);
        }
        self.rebuild_index();
    }

    fn rebuild_index(&mut self) {
        let Self { log, index, .. } = self;
        index.clear();
        for (position, record) in log.iter().filter(|(_, record)| !record.is_forgotten()) {
            index.insert_unique(record.key.table(), position, |&at| log.get(at).key.table());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::hash::KeyHasher;
    use super::*;
    use crate::EventKey;
    use crate::store::ClaimToken;

    struct Fixture {
        completed: Completed,
        hasher: KeyHasher,
    }

    impl Fixture {
        fn new() -> Self {
            Self { completed: Completed::default(), hasher: KeyHasher::new() }
        }

        fn key(&self, id: u32) -> KeyHash {
            self.hasher.hash(&EventKey::new("/hook", None, &id.to_string()))
        }

        fn complete(&mut self, id: u32, at: u64, retention: u64, failure: Option<&str>) {
            let (at, retention) = (Duration::from_secs(at), Duration::from_secs(retention));
            let record = Record::new(self.key(id), id, ClaimToken::random(), at, retention);
            self.completed.insert(record, failure);
        }

        fn knows(&self, id: u32, at: u64) -> bool {
            let found = self.completed.get(&self.key(id), seconds(at));
            found.inspect(|record| assert_eq!(record.fingerprint, id)).is_some()
        }
    }

    fn seconds(at: u64) -> Ticks {
        Ticks::floor(Duration::from_secs(at))
    }

    #[test]
    fn records_are_found_across_the_wrap_around() {
        let mut fixture = Fixture::new();
        fixture.completed.log = Log::starting_at(u32::MAX - 1_000);
        for id in 0..3_000 {
            fixture.complete(id, 0, 10, None);
        }
        assert!((0..3_000).all(|id| fixture.knows(id, 9)));

        for _ in 0..1_500 {
            assert!(fixture.completed.evict(Ticks::ZERO, seconds(9)));
        }
        assert!((0..1_500).all(|id| !fixture.knows(id, 9)));
        assert!((1_500..3_000).all(|id| fixture.knows(id, 9)));
        assert_eq!(fixture.completed.len(), 1_500);
    }

    #[test]
    fn holes_behind_a_long_lived_head_do_not_pile_up() {
        let mut fixture = Fixture::new();
        fixture.complete(0, 0, 1_000_000, None);
        for id in 1..20_000 {
            let now = u64::from(id);
            fixture.complete(id, now, 1, None);
            if id > 2 {
                let expired = fixture.key(id - 2);
                assert!(fixture.completed.recall(&expired, seconds(now)).is_none());
            }
        }
        assert!(fixture.knows(0, 20_000));
        assert!(fixture.completed.log.len() <= 2 * SEGMENT, "{} records", fixture.completed.log.len());
    }

    #[test]
    fn expired_records_go_wherever_they_are() {
        let mut fixture = Fixture::new();
        for id in 0..1_000 {
            fixture.complete(id, 0, if id % 2 == 0 { 100 } else { 5 }, Some("given up"));
        }
        fixture.completed.drop_all_expired(seconds(4));
        assert_eq!(fixture.completed.len(), 1_000);

        assert_eq!(fixture.completed.remembered(seconds(5)), 500);
        fixture.completed.drop_all_expired(seconds(5));
        assert_eq!((fixture.completed.len(), fixture.completed.failures.len()), (500, 500));
        assert!((0..1_000).all(|id| fixture.knows(id, 5) == (id % 2 == 0)));
        assert_eq!(fixture.completed.first_expiry, seconds(100));
    }

    #[test]
    fn reasons_go_with_their_records() {
        let mut fixture = Fixture::new();
        fixture.complete(1, 0, 5, Some("no such account"));
        fixture.complete(2, 0, 5, None);
        assert_eq!(fixture.completed.failure(&fixture.key(1), seconds(0)), Some("no such account"));
        assert_eq!(fixture.completed.failure(&fixture.key(2), seconds(0)), None);
        assert_eq!(fixture.completed.failure(&fixture.key(1), seconds(5)), None);

        fixture.completed.drop_expired(2, seconds(5));
        assert_eq!((fixture.completed.len(), fixture.completed.failures.len()), (0, 0));
    }

    #[test]
    fn a_busy_index_does_not_grow() {
        let mut fixture = Fixture::new();
        // Just under the load at which a table of 4,096 buckets has to double.
        for id in 0..3_000 {
            fixture.complete(id, 0, 100, None);
        }
        let buckets = fixture.completed.index.num_buckets();
        for id in 3_000..100_000 {
            assert!(fixture.completed.evict(Ticks::ZERO, seconds(1)));
            fixture.complete(id, 0, 100, None);
        }
        assert_eq!(fixture.completed.index.num_buckets(), buckets);
        assert!((97_000..100_000).all(|id| fixture.knows(id, 1)));
    }

    #[test]
    fn a_record_kept_for_no_time_is_dropped_like_any_other() {
        let mut fixture = Fixture::new();
        fixture.complete(1, 0, 0, None);
        fixture.completed.drop_expired(1, seconds(1));
        assert_eq!((fixture.completed.len(), fixture.completed.log.len()), (0, 0));
    }
}
