//! The indexes by which the events of the queue are found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Now};
use super::leasable::{Leasable, Position};
use super::orders::Orders;
use crate::EventKey;
use crate::store::queue::EventState;

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
        self.leasable.remove(entry.event.key.endpoint(), &entry.event.event_type, (entry.due_at, arrival));
    }

    /// Makes an event leasable, if it may be leased.
    pub(super) fn offer(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        let is_open = matches!(entry.event.state, EventState::Waiting | EventState::Running);
        if is_open && entry.order().is_none_or(|order| self.orders.is_first(&order.key, arrival)) {
            self.leasable.insert(entry.event.key.endpoint(), &entry.event.event_type, (entry.due_at, arrival));
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
        if entry.due_at <= now.elapsed {
            self.due.insert((received, arrival));
        } else {
            self.later.insert((entry.due_at, arrival), received);
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        if !self.due.remove(&(entry.event.received_at, arrival)) {
            self.later.remove(&(entry.due_at, arrival));
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
