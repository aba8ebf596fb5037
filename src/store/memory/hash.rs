//! The hashes by which keys and bodies are remembered, and a map by them that forgets its oldest values.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hasher, RandomState};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::EventKey;
use crate::store::Fingerprint;

/// A keyed 128-bit hash of an [`EventKey`]: among a hundred million events two share one with a chance below 1 in 10²².
///
/// Bytes and not a `u128`, whose alignment would pad every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct KeyHash([u8; 16]);

impl KeyHash {
    /// The half that picks the slot in a table.
    pub(super) fn table(&self) -> u64 {
        self.half(0)
    }

    /// The half that picks the shard. The table of a shard uses the other half: with the same one, all keys of a shard
    /// would lie in one part of its table.
    pub(super) fn shard(&self) -> u64 {
        self.half(8)
    }

    fn half(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.0[at..at + 8]);
        u64::from_ne_bytes(bytes)
    }
}

/// The secret keys under which a store hashes.
pub(super) struct KeyHasher {
    state: RandomState,
    seed: u64,
    multiplier: u64,
}

impl KeyHasher {
    pub(super) fn new() -> Self {
        let state = RandomState::new();
        let (seed, multiplier) = (RandomState::new().hash_one(0), state.hash_one(1) | 1);
        Self { state, seed, multiplier }
    }

    /// Hashes a key. One half is a pseudo-random function of the key, so that no attacker can make keys collide; the
    /// other makes accidents as unlikely as 128 bits do, and is three times faster than a second such function would
    /// be.
    pub(super) fn hash(&self, key: &EventKey) -> KeyHash {
        self.hash_text(key.as_str())
    }

    /// Hashes any text, as [`hash`](Self::hash) does.
    pub(super) fn hash_text(&self, text: &str) -> KeyHash {
        let text = text.as_bytes();
        let mut hasher = self.state.build_hasher();
        hasher.write(text);
        let halves = [hasher.finish(), xxh3_64_with_seed(text, self.seed)];
        let mut bytes = [0; 16];
        for (half, hash) in bytes.chunks_exact_mut(8).zip(halves) {
            half.copy_from_slice(&hash.to_ne_bytes());
        }
        KeyHash(bytes)
    }

    /// Shortens a fingerprint. Two different ones collide in 1 of 2³¹ stores, and an attacker, who picks the ids
    /// that the replay guard compares, cannot tell in which.
    pub(super) fn short(&self, fingerprint: Fingerprint) -> u32 {
        (fingerprint.as_u64().wrapping_mul(self.multiplier) >> 32) as u32
    }
}

/// A map with room for so many values. The value that was inserted the longest ago is forgotten first.
#[derive(Debug)]
pub(super) struct BoundedMap<V> {
    capacity: usize,
    /// Each value with its key in `oldest`.
    values: HashMap<KeyHash, (V, u64)>,
    oldest: BTreeMap<u64, KeyHash>,
    last: u64,
    /// How many values were forgotten to make room for others.
    pub(super) forgotten: u64,
}

impl<V> BoundedMap<V> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { capacity, values: HashMap::new(), oldest: BTreeMap::new(), last: 0, forgotten: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.values.len()
    }

    /// Adds the value of a key that has none.
    pub(super) fn insert(&mut self, key: KeyHash, value: V) {
        if self.len() >= self.capacity
            && let Some((_, oldest)) = self.oldest.pop_first()
        {
            self.values.remove(&oldest);
            self.forgotten += 1;
        }
        self.last += 1;
        self.values.insert(key, (value, self.last));
        self.oldest.insert(self.last, key);
    }

    pub(super) fn remove(&mut self, key: &KeyHash) -> Option<V> {
        // Most maps are empty, and every new claim looks here.
        if self.values.is_empty() {
            return None;
        }
        let (value, age) = self.values.remove(key)?;
        self.oldest.remove(&age);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_that_share_half_their_bits_are_told_apart() {
        let hasher = KeyHasher::new();
        let short = |value| hasher.short(Fingerprint::from_u64(value));
        for bit in 0..64 {
            assert_ne!(short(0x0123_4567_89ab_cdef), short(0x0123_4567_89ab_cdef ^ 1 << bit), "bit {bit}");
        }
        assert_eq!(short(7), short(7));
    }

    #[test]
    fn one_key_has_one_hash_per_store() {
        let (one, other) = (KeyHasher::new(), KeyHasher::new());
        let key = EventKey::new("/hook", None, "evt_1");

        assert_eq!(one.hash(&key), one.hash(&key.clone()));
        assert_ne!(one.hash(&key), other.hash(&key));
        assert_ne!(one.hash(&key), one.hash(&EventKey::new("/hook", None, "evt_2")));
        assert_ne!(one.hash(&key).table(), one.hash(&key).shard());
    }

    #[test]
    fn oldest_values_are_forgotten_first() {
        let hasher = KeyHasher::new();
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|key| hasher.hash_text(key));
        let mut map = BoundedMap::new(3);
        for (key, value) in [(a, 0), (b, 1), (c, 2)] {
            map.insert(key, value);
        }
        // A value that is inserted again is the youngest.
        let value = map.remove(&a).expect("a value");
        map.insert(a, value);
        map.insert(d, 3);
        assert_eq!((map.len(), map.oldest.len(), map.forgotten), (3, 3, 1));
        assert_eq!([a, b, c, d].map(|key| map.remove(&key)), [Some(0), None, Some(2), Some(3)]);
        assert_eq!(map.remove(&a), None, "a removed value is forgotten");
        assert_eq!((map.len(), map.oldest.len(), map.forgotten), (0, 0, 1));
    }
}
