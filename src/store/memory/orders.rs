//! Events that run one at a time, in the order of their arrival, and the sequences that were applied.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::bounded::BoundedMap;
use super::hash::KeyHasher;
use crate::store::queue::Order;

/// The orders of all resources. An event is in its order from its arrival until it is completed or dead.
pub(super) struct Orders {
    open: HashMap<Box<str>, OpenOrder>,
    hasher: KeyHasher,
    /// The sequences of resources that have no event in the queue, by a hash: names may be long, and most resources
    /// never come back.
    pub(super) sequences: BoundedMap<i64>,
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
        Self { open: HashMap::new(), hasher: KeyHasher::new(), sequences: BoundedMap::new(sequences) }
    }

    pub(super) fn insert(&mut self, key: &str, arrival: u64) {
        match self.open.get_mut(key) {
            Some(open) => _ = open.events.insert(arrival),
            None => {
                let order =
                    OpenOrder { events: [arrival].into(), applied: self.sequences.remove(&self.hasher.hash_text(key)) };
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
                self.sequences.insert(self.hasher.hash_text(&order.key), applied);
            }
        }
        first
    }
}

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Orders").field("open", &self.open).finish_non_exhaustive()
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
}
