//! By what the events of an inbox are found.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::entry::{Entry, Now};
use super::leasable::{Leasable, Place};
use super::line::Lines;
use super::waiting::Waiting;
use crate::EventKey;
use crate::store::queue::EventState;

/// What depends on the states of events. An entry is taken out before it changes and put in afterwards.
#[derive(Debug)]
pub(super) struct Index {
    pub(super) arrivals: BTreeMap<u64, EventKey>,
    pub(super) lines: Lines,
    pub(super) waiting: Waiting,
    /// Waiting events that are first in their line, and running ones.
    pub(super) leasable: Leasable,
    pub(super) running: usize,
    pub(super) dead: usize,
    /// Completed events, by when they were completed.
    completed: BTreeSet<Place>,
    /// Completed events, by when something of them goes.
    ends: BTreeSet<Place>,
    /// For how long the bodies of completed events are kept.
    bodies: Duration,
}

impl Index {
    pub(super) fn new(marks: usize, bodies: Duration) -> Self {
        Self {
            arrivals: BTreeMap::new(),
            lines: Lines::new(marks),
            waiting: Waiting::default(),
            leasable: Leasable::default(),
            running: 0,
            dead: 0,
            completed: BTreeSet::new(),
            ends: BTreeSet::new(),
            bodies,
        }
    }

    pub(super) fn put(&mut self, entry: &Entry, now: Now) {
        let arrival = entry.event.arrival;
        match entry.event.state {
            EventState::Waiting => self.waiting.insert(entry, now),
            EventState::Running => self.running += 1,
            EventState::Dead => self.dead += 1,
            EventState::Completed => {
                self.completed.insert((entry.ended, arrival));
                self.ends.insert((entry.next_end(self.bodies), arrival));
            }
        }
        self.offer(entry);
    }

    pub(super) fn take(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        match entry.event.state {
            EventState::Waiting => self.waiting.remove(entry),
            EventState::Running => self.running -= 1,
            EventState::Dead => self.dead -= 1,
            EventState::Completed => {
                self.completed.remove(&(entry.ended, arrival));
                self.ends.remove(&(entry.next_end(self.bodies), arrival));
            }
        }
        self.leasable.remove(entry.event.key.endpoint(), &entry.event.event_type, (entry.until, arrival));
    }

    /// Puts an event among those that may be leased, if it may.
    pub(super) fn offer(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        let is_open = matches!(entry.event.state, EventState::Waiting | EventState::Running);
        if is_open && entry.order().is_none_or(|order| self.lines.is_first(&order.key, arrival)) {
            self.leasable.insert(entry.event.key.endpoint(), &entry.event.event_type, (entry.until, arrival));
        }
    }

    /// How many events are completed.
    pub(super) fn completed(&self) -> usize {
        self.completed.len()
    }

    /// The event that was completed the longest ago.
    pub(super) fn oldest_completed(&self) -> Option<&EventKey> {
        self.completed.first().and_then(|(_, arrival)| self.arrivals.get(arrival))
    }

    /// A completed event of which something goes now.
    pub(super) fn ended(&self, now: Now) -> Option<&EventKey> {
        let (at, arrival) = self.ends.first()?;
        (*at <= now.elapsed).then(|| self.arrivals.get(arrival)).flatten()
    }
}
