//! A map that forgets its oldest values.

use std::collections::{BTreeMap, HashMap};

use super::hash::KeyHash;

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
    use super::super::hash::KeyHasher;
    use super::*;

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
