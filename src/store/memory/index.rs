//! The indexes by which the events of the queue are found.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Now};
use super::hash::{BoundedMap, KeyHasher};
use super::leasable::{Leasable, Position};
use crate::EventKey;
use crate::store::queue::{EventState, Order};

/// Everything that depends on the states of events. An entry is removed before it changes and inserted afterwards.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) arrivals: BTreeMap<u64, EventKey>,
    pub(super) orders: Orders,
    pub(super) waiting: Waiting,
    /// Waiting events that are the first of their order, and running ones.
    pub(super) leasable: Leasable,
    pub(super) running: usize,
    pub(super) dead: usize,
    /// Completed events, by when they were completed.
    completed: BTreeSet<Position>,
    /// Completed events, by when they lose their body or are forgotten.
    ends: BTreeSet<Position>,
    /// For how long the bodies of completed events are kept.
    bodies: Duration,
}

impl Index {
    pub(super) fn new(sequences: usize, bodies: Duration) -> Self {
        Self {
            arrivals: BTreeMap::new(),
            orders: Orders::new(sequences),
            waiting: Waiting::default(),
            leasable: Leasable::default(),
            running: 0,
            dead: 0,
            completed: BTreeSet::new(),
            ends: BTreeSet::new(),
            bodies,
        }
    }

    pub(super) fn insert(&mut self, entry: &Entry, now: Now) {
        let arrival = entry.event.arrival;
        match entry.event.state {
            EventState::Waiting => self.waiting.insert(entry, now),
            EventState::Running => self.running += 1,
            EventState::Dead => self.dead += 1,
            EventState::Completed => {
                self.completed.insert((entry.completed_at, arrival));
                self.ends.insert((entry.next_end(self.bodies), arrival));
            }
        }
        self.offer(entry);
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        match entry.event.state {
            EventState::Waiting => self.waiting.remove(entry),
            EventState::Running => self.running -= 1,
            EventState::Dead => self.dead -= 1,
            EventState::Completed => {
                self.completed.remove(&(entry.completed_at, arrival));
                self.ends.remove(&(entry.next_end(self.bodies), arrival));
            }
        }
        self.leasable.remove(entry.event.key.endpoint(), &entry.event.event_type, (entry.leasable_from, arrival));
    }

    /// Makes an event leasable, if it may be leased.
    pub(super) fn offer(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        let is_open = matches!(entry.event.state, EventState::Waiting | EventState::Running);
        if is_open && entry.order().is_none_or(|order| self.orders.is_first(&order.key, arrival)) {
            self.leasable.insert(entry.event.key.endpoint(), &entry.event.event_type, (entry.leasable_from, arrival));
        }
    }

    /// The number of completed events.
    pub(super) fn completed(&self) -> usize {
        self.completed.len()
    }

    /// The event that was completed the longest ago.
    pub(super) fn oldest_completed(&self) -> Option<&EventKey> {
        self.completed.first().and_then(|(_, arrival)| self.arrivals.get(arrival))
    }

    /// A completed event that loses its body or is forgotten now.
    pub(super) fn ended(&self, now: Now) -> Option<&EventKey> {
        let (at, arrival) = self.ends.first()?;
        (*at <= now.elapsed).then(|| self.arrivals.get(arrival)).flatten()
    }
}

/// Waiting events, so that they are counted, and the oldest one that is due is found, without a walk over all of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Events that were due when they were last looked at, by when they were received.
    due: BTreeSet<(SystemTime, u64)>,
    /// The other events, by when they are due, with when they were received.
    later: BTreeMap<(Duration, u64), SystemTime>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.due.len() + self.later.len()
    }

    pub(super) fn insert(&mut self, entry: &Entry, now: Now) {
        let (received, arrival) = (entry.event.received_at, entry.event.arrival);
        if entry.leasable_from <= now.elapsed {
            self.due.insert((received, arrival));
        } else {
            self.later.insert((entry.leasable_from, arrival), received);
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        if !self.due.remove(&(entry.event.received_at, arrival)) {
            self.later.remove(&(entry.leasable_from, arrival));
        }
    }

    /// Returns for how long the oldest event that is due has been waiting, since it was received.
    pub(super) fn oldest(&mut self, now: Now) -> Option<Duration> {
        while let Some(next) = self.later.first_entry()
            && next.key().0 <= now.elapsed
        {
            let ((_, arrival), received) = next.remove_entry();
            self.due.insert((received, arrival));
        }
        let (received, _) = self.due.first()?;
        Some(now.wall.duration_since(*received).unwrap_or_default())
    }
}

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
