//! The events of the queue, kept whole: every state, in one place and under one lock.

use std::collections::HashMap;
use std::time::Duration;

use super::entry::{Entry, Now};
use super::index::Index;
use crate::EventKey;
use crate::store::queue::{
    Change, Changed, DISCARDED, EventState, Filter, LeaseRequest, Leased, Page, QueueCounts, QueuedEvent, StoredRequest,
};
use crate::store::record::{self, Verb};
use crate::store::{Claim, ClaimRequest, Completion, Ending, Hold};

/// How many completed events are kept whole, for operators. Of older ones only the record that tells duplicates is
/// kept.
const COMPLETED_KEPT: usize = 10_000;

#[derive(Debug)]
pub(super) struct Events {
    entries: HashMap<EventKey, Entry>,
    pub(super) index: Index,
    last_arrival: u64,
    /// How many completed events left before their retention was over, for their records to be kept elsewhere.
    pub(super) retired: u64,
    /// Whether the operator was warned that the queue fills up.
    pub(super) is_filling: bool,
}

impl Events {
    /// Creates an empty queue. It remembers the sequences of up to `sequences` resources without events, and the bodies
    /// of completed events for `bodies`.
    pub(super) fn new(sequences: usize, bodies: Duration) -> Self {
        let index = Index::new(sequences, bodies);
        Self { entries: HashMap::new(), index, last_arrival: 0, retired: 0, is_filling: false }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Counts the events that are not completed: these cannot make room.
    pub(super) fn open(&self) -> usize {
        self.len() - self.index.completed()
    }

    /// Forgets completed events whose retention is over, and bodies that are not kept for as long.
    pub(super) fn expire(&mut self, now: Now) {
        while let Some(key) = self.index.ended(now).cloned() {
            let Some(entry) = self.entries.get_mut(&key) else { return };
            if entry.expires_at <= now.elapsed {
                self.remove(&key);
                continue;
            }
            self.index.remove(entry);
            entry.event.request = None;
            self.index.insert(entry, now);
        }
    }

    /// Answers a claim; `None` if the queue does not have the event.
    pub(super) fn claim(&self, claim: &ClaimRequest<'_>) -> Option<Claim> {
        self.entries.get(claim.key).map(|entry| record::claim(Some(entry.found_by(claim))))
    }

    /// Answers an enqueue; `None` if the queue does not have the event.
    pub(super) fn answer(&self, claim: &ClaimRequest<'_>) -> Option<Claim> {
        self.entries.get(claim.key).map(|entry| record::enqueue(Some(entry.found_by(claim))).0)
    }

    /// Adds an event that the queue does not have.
    pub(super) fn insert(&mut self, claim: &ClaimRequest<'_>, request: &StoredRequest, now: Now) {
        let arrival = self.next_arrival();
        self.entries.insert(claim.key.clone(), Entry::new(claim, request, arrival, now));
        self.arrive(claim.key, now);
    }

    pub(super) fn lease(&mut self, request: &LeaseRequest<'_>, now: Now) -> Vec<Leased> {
        let Self { entries, index, .. } = self;
        let type_of = |arrival| index.arrivals.get(&arrival).and_then(|key| entries.get(key)).map(Entry::event_type);
        let positions = index.leasable.choose(request, now.elapsed, type_of);
        positions.into_iter().filter_map(|(_, arrival)| self.lease_one(arrival, request.lease, now)).collect()
    }

    /// Renews a lease; `None` if the queue does not have the event.
    pub(super) fn renew(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Hold> {
        self.settle_as(Verb::Renew, claim, now, |entry| entry.hold_for(claim.lease, now))
    }

    /// Renews a lease, and notes that the handler is about to be called.
    pub(super) fn start(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Hold> {
        self.settle_as(Verb::Start, claim, now, |entry| {
            entry.started = true;
            entry.hold_for(claim.lease, now);
        })
    }

    /// Ends a lease; `None` if the queue does not have the event.
    pub(super) fn settle(&mut self, claim: &ClaimRequest<'_>, ending: Ending<'_>, now: Now) -> Option<Hold> {
        self.settle_as(Verb::from(&ending), claim, now, |entry| match ending {
            Ending::Complete(Completion { failed: false, summary, retention }) => {
                entry.applied = true;
                entry.complete(summary, retention, now);
            }
            Ending::Complete(Completion { summary: reason, .. }) | Ending::Bury { reason } => entry.bury(reason, now),
            Ending::Release => entry.release(),
            Ending::Retry { after, reason } => entry.retry(after, reason, now),
        })
    }

    /// Whether more completed events are kept whole than should be.
    pub(super) fn has_surplus(&self) -> bool {
        self.index.completed() > COMPLETED_KEPT
    }

    /// The event that was completed the longest ago.
    pub(super) fn oldest_completed(&self) -> Option<&Entry> {
        self.index.oldest_completed().and_then(|key| self.entries.get(key))
    }

    /// Removes a completed event whose record is kept elsewhere.
    pub(super) fn retire(&mut self, key: &EventKey) {
        self.remove(key);
        self.retired += 1;
    }

    pub(super) fn waiting(&self, up_to: u64) -> u64 {
        up_to.min(self.index.waiting.len() as u64)
    }

    pub(super) fn counts(&mut self, now: Now) -> QueueCounts {
        QueueCounts {
            waiting: self.index.waiting.len() as u64,
            running: self.index.running as u64,
            completed: self.index.completed() as u64,
            dead: self.index.dead as u64,
            oldest_waiting: self.index.waiting.oldest(now),
        }
    }

    pub(super) fn list(&self, filter: &Filter, page: &Page) -> Vec<QueuedEvent> {
        let after = page.after.map_or(0, |last| last.saturating_add(1));
        let events = self.matching(filter, after).take(page.limit);
        events.map(|event| QueuedEvent { failures: Vec::new(), request: None, ..event.clone() }).collect()
    }

    pub(super) fn get(&self, key: &EventKey) -> Option<QueuedEvent> {
        self.entries.get(key).map(|entry| entry.event.clone())
    }

    /// Makes an operator's change.
    pub(super) fn change(&mut self, filter: &Filter, change: Change, now: Now) -> Changed {
        let events = self.matching(filter, 0).filter(|event| change.states().contains(&event.state));
        let keys: Vec<_> = events.map(|event| event.key.clone()).collect();
        let mut changed = Changed::new(keys.len() as u64);
        for key in &keys {
            match change {
                Change::Requeue { .. } if !self.requeue(key, now) => {
                    changed.events -= 1;
                    changed.without_body += 1;
                }
                Change::Requeue { .. } => {}
                Change::Discard { retention } => {
                    self.change_one(key, now, |entry| entry.complete(DISCARDED, retention, now));
                }
                Change::Forget => self.remove(key),
            }
        }
        changed
    }

    /// Returns whether the event could be requeued: without its body it cannot.
    fn requeue(&mut self, key: &EventKey, now: Now) -> bool {
        let arrival = self.next_arrival();
        let Some(entry) = self.entries.get_mut(key).filter(|entry| entry.event.request.is_some()) else { return false };
        self.index.remove(entry);
        self.index.arrivals.remove(&entry.event.arrival);
        entry.requeue(arrival, now);
        self.arrive(key, now);
        true
    }

    /// The events that match, from an arrival on. An event that is asked for by its key is looked up.
    fn matching(&self, filter: &Filter, from: u64) -> impl Iterator<Item = &QueuedEvent> {
        let (one, all) = match &filter.key {
            Some(key) => (self.entries.get(key).map(|entry| &entry.event), None),
            None => (None, Some(self.index.arrivals.range(from..))),
        };
        let all = all.into_iter().flatten().filter_map(|(_, key)| Some(&self.entries.get(key)?.event));
        one.into_iter().chain(all).filter(move |event| event.arrival >= from && filter.matches(event))
    }

    fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }

    /// Puts an event behind everything that is waiting.
    fn arrive(&mut self, key: &EventKey, now: Now) {
        let Some(entry) = self.entries.get(key) else { return };
        let arrival = entry.event.arrival;
        self.index.arrivals.insert(arrival, key.clone());
        if let Some(order) = entry.order() {
            self.index.orders.insert(&order.key, arrival);
        }
        self.index.insert(entry, now);
    }

    /// Changes an event, and the indexes by its state.
    fn change_one(&mut self, key: &EventKey, now: Now, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.index.remove(entry);
        change(entry);
        let mut next = None;
        if matches!(entry.event.state, EventState::Completed | EventState::Dead)
            && let Some(order) = entry.order()
        {
            next = self.index.orders.remove(order, entry.event.arrival, entry.applied);
        }
        self.index.insert(entry, now);
        let next = next.and_then(|arrival| self.index.arrivals.get(&arrival));
        if let Some(next) = next.and_then(|key| self.entries.get(key)) {
            self.index.offer(next);
        }
    }

    fn remove(&mut self, key: &EventKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.index.remove(&entry);
            self.index.arrivals.remove(&entry.event.arrival);
        }
    }

    fn lease_one(&mut self, arrival: u64, lease: Duration, now: Now) -> Option<Leased> {
        let key = self.index.arrivals.get(&arrival)?.clone();
        self.change_one(&key, now, |entry| entry.lease(lease, now));
        let entry = self.entries.get(&key)?;
        let mut leased = Leased::new(key, entry.token, entry.event.request.clone()?);
        leased.attempt = entry.event.attempts;
        leased.event_type = entry.event.event_type.clone();
        leased.fingerprint = entry.fingerprint;
        leased.started = entry.started;
        leased.superseded = entry.order().is_some_and(|order| self.index.orders.is_superseded(order));
        Some(leased)
    }

    /// Changes an event if the rule of `verb` says so; `None` if the queue does not have the event.
    fn settle_as(
        &mut self,
        verb: Verb,
        claim: &ClaimRequest<'_>,
        now: Now,
        change: impl FnOnce(&mut Entry),
    ) -> Option<Hold> {
        let found = self.entries.get(claim.key)?.found_by(claim);
        match record::settle(Some(found), verb) {
            (hold, false) => Some(hold),
            (hold, true) => {
                self.change_one(claim.key, now, change);
                Some(hold)
            }
        }
    }
}
