//! The last sequences of resources that have no event in the inbox.

use std::collections::{BTreeMap, HashMap};

use super::hash::{KeyHash, KeyHasher};

/// The highest completed sequence of each resource, up to a number of resources. The resource whose last event ended the
/// longest ago is forgotten first.
///
/// A resource is remembered as a hash: its name may be long, and most of them never come back.
pub(super) struct Marks {
    capacity: usize,
    hasher: KeyHasher,
    /// With the place in `oldest`.
    sequences: HashMap<KeyHash, (i64, u64)>,
    oldest: BTreeMap<u64, KeyHash>,
    last: u64,
    forgotten: u64,
}

impl Marks {
    pub(super) fn new(capacity: usize) -> Self {
        let (sequences, oldest) = (HashMap::new(), BTreeMap::new());
        Self { capacity, hasher: KeyHasher::new(), sequences, oldest, last: 0, forgotten: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// How many were forgotten to make room for others.
    pub(super) fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Takes the mark of a resource out, whose events are in a line from now on.
    pub(super) fn take(&mut self, resource: &str) -> Option<i64> {
        if self.sequences.is_empty() {
            return None;
        }
        let (sequence, place) = self.sequences.remove(&self.hasher.hash_text(resource))?;
        self.oldest.remove(&place);
        Some(sequence)
    }

    /// Adds the mark of a resource that has none.
    pub(super) fn put(&mut self, resource: &str, sequence: i64) {
        if self.len() >= self.capacity
            && let Some((_, resource)) = self.oldest.pop_first()
        {
            self.sequences.remove(&resource);
            self.forgotten += 1;
        }
        self.last += 1;
        let key = self.hasher.hash_text(resource);
        self.sequences.insert(key, (sequence, self.last));
        self.oldest.insert(self.last, key);
    }
}

impl std::fmt::Debug for Marks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Marks").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_that_ended_the_longest_ago_is_forgotten_first() {
        let mut marks = Marks::new(3);
        for (sequence, name) in ["a", "b", "c"].into_iter().enumerate() {
            marks.put(name, sequence as i64);
        }
        // Seen again, it is the youngest.
        let sequence = marks.take("a").expect("a mark");
        marks.put("a", sequence);
        marks.put("d", 3);
        assert_eq!((marks.len(), marks.oldest.len(), marks.forgotten()), (3, 3, 1));
        assert_eq!(["a", "b", "c", "d"].map(|name| marks.take(name)), [Some(0), None, Some(2), Some(3)]);
        assert_eq!((marks.len(), marks.oldest.len(), marks.forgotten()), (0, 0, 1));
    }
}
