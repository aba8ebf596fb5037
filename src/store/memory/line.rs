//! Events that wait for each other.

use std::collections::{BTreeSet, HashMap};

use super::marks::Marks;
use crate::store::queue::Order;

/// The lines of all resources. An event is in its line from its arrival until it is completed or dead.
#[derive(Debug)]
pub(super) struct Lines {
    lines: HashMap<Box<str>, Line>,
    /// The sequences of resources that have no line.
    pub(super) marks: Marks,
}

/// A resource with at least one event that waits or runs.
#[derive(Debug)]
struct Line {
    /// By arrival.
    events: BTreeSet<u64>,
    /// The highest sequence that was completed.
    applied: Option<i64>,
}

impl Lines {
    /// Lines that remember the sequences of up to `marks` resources without events.
    pub(super) fn new(marks: usize) -> Self {
        Self { lines: HashMap::new(), marks: Marks::new(marks) }
    }

    pub(super) fn join(&mut self, key: &str, arrival: u64) {
        match self.lines.get_mut(key) {
            Some(line) => _ = line.events.insert(arrival),
            None => {
                let line = Line { events: [arrival].into(), applied: self.marks.take(key) };
                self.lines.insert(key.into(), line);
            }
        }
    }

    pub(super) fn is_first(&self, key: &str, arrival: u64) -> bool {
        self.lines.get(key).and_then(|line| line.events.first()) == Some(&arrival)
    }

    pub(super) fn has_applied(&self, order: &Order) -> bool {
        let applied = self.lines.get(&order.key).and_then(|line| line.applied);
        order.sequence.is_some_and(|sequence| applied.is_some_and(|applied| applied >= sequence))
    }

    /// Takes an event out, and returns the one that is first now.
    pub(super) fn leave(&mut self, order: &Order, arrival: u64, applied: bool) -> Option<u64> {
        let line = self.lines.get_mut(&order.key)?;
        line.events.remove(&arrival);
        if applied {
            line.applied = line.applied.max(order.sequence);
        }
        let (first, applied) = (line.events.first().copied(), line.applied);
        if first.is_none() {
            self.lines.remove(&order.key);
            if let Some(applied) = applied {
                self.marks.put(&order.key, applied);
            }
        }
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nth(sequence: i64) -> Order {
        Order::of("r").sequence(sequence)
    }

    #[test]
    fn sequence_outlives_its_line() {
        let mut lines = Lines::new(1);
        lines.join("r", 1);
        assert!(!lines.has_applied(&nth(5)));
        assert_eq!(lines.leave(&nth(5), 1, true), None);
        assert_eq!((lines.lines.len(), lines.marks.len()), (0, 1));

        lines.join("r", 2);
        assert!(lines.has_applied(&nth(5)) && !lines.has_applied(&nth(6)));
        assert_eq!(lines.leave(&nth(6), 2, false), None);
        lines.join("r", 3);
        assert!(lines.has_applied(&nth(5)) && !lines.has_applied(&nth(6)));
    }

    #[test]
    fn sequence_of_a_resource_with_events_is_never_forgotten() {
        let mut lines = Lines::new(1);
        lines.join("r", 1);
        lines.join("r", 2);
        assert_eq!(lines.leave(&nth(5), 1, true), Some(2));
        for (arrival, name) in ["s", "t", "u"].into_iter().enumerate() {
            lines.join(name, 3 + arrival as u64);
            lines.leave(&Order::of(name).sequence(1), 3 + arrival as u64, true);
        }
        assert_eq!((lines.marks.len(), lines.marks.forgotten()), (1, 2));
        assert!(lines.has_applied(&nth(5)));
    }
}
