//! The events that are to be run, now or later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Now};

/// Waiting events, so that they are counted, and the oldest one that is due is found, without a walk over all of them.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Events that were due when they were last looked at, by when they were received.
    due: BTreeSet<(SystemTime, u64)>,
    /// The others, by when they are due, and when they were received.
    later: BTreeMap<(Duration, u64), SystemTime>,
}

impl Waiting {
    pub(super) fn len(&self) -> usize {
        self.due.len() + self.later.len()
    }

    pub(super) fn insert(&mut self, entry: &Entry, now: Now) {
        let (received, arrival) = (entry.event.received_at, entry.event.arrival);
        if entry.until <= now.elapsed {
            self.due.insert((received, arrival));
        } else {
            self.later.insert((entry.until, arrival), received);
        }
    }

    pub(super) fn remove(&mut self, entry: &Entry) {
        let arrival = entry.event.arrival;
        if !self.due.remove(&(entry.event.received_at, arrival)) {
            self.later.remove(&(entry.until, arrival));
        }
    }

    /// For how long the oldest event that is due has been waiting, since it was received.
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
