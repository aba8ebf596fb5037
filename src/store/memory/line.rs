//! Events that wait for each other.

use std::collections::{BTreeSet, HashMap};

use crate::inbox::Order;

/// The lines of all resources. An event is in its line from its arrival until it is completed or dead.
#[derive(Debug, Default)]
pub(super) struct Lines {
    lines: HashMap<Box<str>, Line>,
}

#[derive(Debug, Default)]
struct Line {
    /// By arrival.
    events: BTreeSet<u64>,
    /// The highest sequence that was completed: kept for as long as the store is.
    applied: Option<i64>,
}

impl Lines {
    pub(super) fn join(&mut self, key: &str, arrival: u64) {
        match self.lines.get_mut(key) {
            Some(line) => _ = line.events.insert(arrival),
            None => _ = self.lines.insert(key.into(), Line { events: [arrival].into(), applied: None }),
        }
    }

    pub(super) fn is_first(&self, key: &str, arrival: u64) -> bool {
        self.lines.get(key).and_then(|line| line.events.first()) == Some(&arrival)
    }

    pub(super) fn has_applied(&self, order: &Order) -> bool {
        let applied = self.lines.get(&order.key).and_then(|line| line.applied);
        order.sequence.is_some_and(|sequence| applied.is_some_and(|applied| applied >= sequence))
    }

    /// Takes an event out, and says who is first now.
    pub(super) fn leave(&mut self, order: &Order, arrival: u64, applied: bool) -> Option<u64> {
        let line = self.lines.get_mut(&order.key)?;
        line.events.remove(&arrival);
        if applied {
            line.applied = line.applied.max(order.sequence);
        }
        let first = line.events.first().copied();
        if first.is_none() && line.applied.is_none() {
            self.lines.remove(&order.key);
        }
        first
    }
}
