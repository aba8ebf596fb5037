//! Events that run one at a time, in the order of their arrival, and the sequences that were applied.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use super::hash::{KeyHash, KeyHasher};
use crate::store::queue::Order;

/// The orders of all resources. An event is in its order from its arrival until it is completed or dead.
#[derive(Debug)]
pub(super) struct Orders {
    open: HashMap<Box<str>, OpenOrder>,
    /// The sequences of resources that have no event in the queue.
    pub(super) sequences: Sequences,
}

/// The order of a resource with at least one event that waits or runs.
#[derive(Debug)]
struct OpenOrder {
    /// By arrival.
    events: BTreeSet<u64>,
    /// The highest sequence that was completed.
    applied: Option<i64>,
}

impl Orders {
    /// Creates orders that remember the sequences of up to `sequences` resources without events.
    pub(super) fn new(sequences: usize) -> Self {
        Self { open: HashMap::new(), sequences: Sequences::new(sequences) }
    }

    pub(super) fn insert(&mut self, key: &str, arrival: u64) {
        match self.open.get_mut(key) {
            Some(open) => _ = open.events.insert(arrival),
            None => {
                let order = OpenOrder { events: [arrival].into(), applied: self.sequences.remove(key) };
                self.open.insert(key.into(), order);
            }
        }
    }

    pub(super) fn is_first(&self, key: &str, arrival: u64) -> bool {
        self.open.get(key).and_then(|open| open.events.first()) == Some(&arrival)
    }

    pub(super) fn is_superseded(&self, order: &Order) -> bool {
        let applied = self.open.get(&order.key).and_then(|open| open.applied);
        order.sequence.is_some_and(|sequence| applied.is_some_and(|applied| applied >= sequence))
    }

    /// Removes an event, and returns the arrival of the one that is first now.
    pub(super) fn remove(&mut self, order: &Order, arrival: u64, applied: bool) -> Option<u64> {
        let open = self.open.get_mut(&order.key)?;
        open.events.remove(&arrival);
        if applied {
            open.applied = open.applied.max(order.sequence);
        }
        let (first, applied) = (open.events.first().copied(), open.applied);
        if first.is_none() {
            self.open.remove(&order.key);
            if let Some(applied) = applied {
                self.sequences.insert(&order.key, applied);
            }
        }
        first
    }
}

/// The highest completed sequence of each resource without events, up to a number of resources. The resource whose last
/// event ended the longest ago is forgotten first.
///
/// A resource is remembered as a hash: its name may be long, and most of them never come back.
pub(super) struct Sequences {
    capacity: usize,
    hasher: KeyHasher,
    /// Each with its key in `oldest`.
    sequences: HashMap<KeyHash, (i64, u64)>,
    oldest: BTreeMap<u64, KeyHash>,
    last: u64,
    /// How many sequences were forgotten to make room for others.
    pub(super) forgotten: u64,
}

impl Sequences {
    pub(super) fn new(capacity: usize) -> Self {
        let (sequences, oldest) = (HashMap::new(), BTreeMap::new());
        Self { capacity, hasher: KeyHasher::new(), sequences, oldest, last: 0, forgotten: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.sequences.len()
    }

    /// Removes the sequence of a resource that has an event from now on.
    pub(super) fn remove(&mut self, resource: &str) -> Option<i64> {
        if self.sequences.is_empty() {
            return None;
        }
        let (sequence, age) = self.sequences.remove(&self.hasher.hash_text(resource))?;
        self.oldest.remove(&age);
        Some(sequence)
    }

    /// Adds the sequence of a resource that has none here.
    pub(super) fn insert(&mut self, resource: &str, sequence: i64) {
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

impl fmt::Debug for Sequences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sequences").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(sequence: i64) -> Order {
        Order::of("r").sequence(sequence)
    }

    #[test]
    fn sequence_outlives_its_events() {
        let mut orders = Orders::new(1);
        orders.insert("r", 1);
        assert!(!orders.is_superseded(&nth(5)));
        assert_eq!(orders.remove(&nth(5), 1, true), None);
        assert_eq!((orders.open.len(), orders.sequences.len()), (0, 1));

        orders.insert("r", 2);
        assert!(orders.is_superseded(&nth(5)) && !orders.is_superseded(&nth(6)));
        assert_eq!(orders.remove(&nth(6), 2, false), None);
        orders.insert("r", 3);
        assert!(orders.is_superseded(&nth(5)) && !orders.is_superseded(&nth(6)));
    }

    #[test]
    fn sequence_of_a_resource_with_events_is_never_forgotten() {
        let mut orders = Orders::new(1);
        orders.insert("r", 1);
        orders.insert("r", 2);
        assert_eq!(orders.remove(&nth(5), 1, true), Some(2));
        for (arrival, name) in ["s", "t", "u"].into_iter().enumerate() {
            orders.insert(name, 3 + arrival as u64);
            orders.remove(&Order::of(name).sequence(1), 3 + arrival as u64, true);
        }
        assert_eq!((orders.sequences.len(), orders.sequences.forgotten), (1, 2));
        assert!(orders.is_superseded(&nth(5)));
    }

    #[test]
    fn resource_that_ended_the_longest_ago_is_forgotten_first() {
        let mut sequences = Sequences::new(3);
        for (sequence, name) in ["a", "b", "c"].into_iter().enumerate() {
            sequences.insert(name, sequence as i64);
        }
        // A resource that is seen again is the youngest.
        let sequence = sequences.remove("a").expect("a sequence");
        sequences.insert("a", sequence);
        sequences.insert("d", 3);
        assert_eq!((sequences.len(), sequences.oldest.len(), sequences.forgotten), (3, 3, 1));
        assert_eq!(["a", "b", "c", "d"].map(|name| sequences.remove(name)), [Some(0), None, Some(2), Some(3)]);
        assert_eq!((sequences.len(), sequences.oldest.len(), sequences.forgotten), (0, 0, 1));
    }
}
