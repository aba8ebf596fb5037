//! The events of an inbox, kept whole: every state, in one place and under one lock.

use std::collections::HashMap;
use std::time::Duration;

use super::entry::{Entry, Now, Retired};
use super::index::Index;
use crate::EventKey;
use crate::store::queue::{EventState, LeaseRequest, Leased, StoredRequest};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Ending, Hold};

/// How many completed events are kept whole, for operators. Of older ones only the record that tells duplicates is.
const COMPLETED_KEPT: usize = 10_000;

#[derive(Debug)]
pub(super) struct EventQueue {
    pub(super) entries: HashMap<EventKey, Entry>,
    pub(super) index: Index,
    last_arrival: u64,
    /// How many completed events left before their retention was over, for their records to be kept elsewhere.
    retired: u64,
    pub(super) filling: bool,
}

impl EventQueue {
    /// A queue that remembers the sequences of up to `marks` resources without events, and the bodies of completed events for
    /// `bodies`.
    pub(super) fn new(marks: usize, bodies: Duration) -> Self {
        let index = Index::new(marks, bodies);
        Self { entries: HashMap::new(), index, last_arrival: 0, retired: 0, filling: false }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// How many events are not completed: there is no other room for them.
    pub(super) fn open(&self) -> usize {
        self.len() - self.index.completed()
    }

    pub(super) fn retired(&self) -> u64 {
        self.retired
    }

    /// Forgets completed events whose retention is over, and bodies that are not kept for as long.
    pub(super) fn expire(&mut self, now: Now) {
        while let Some(key) = self.index.ended(now).cloned() {
            let Some(entry) = self.entries.get_mut(&key) else { return };
            if entry.until <= now.elapsed {
                self.remove(&key);
                continue;
            }
            self.index.take(entry);
            entry.event.request = None;
            self.index.put(entry, now);
        }
    }

    /// The answer to a claim of `key`, if the inbox has it.
    pub(super) fn answer(&self, claim: &ClaimRequest<'_>) -> Option<Claim> {
        let entry = self.entries.get(claim.key)?;
        let same_body = entry.fingerprint == claim.fingerprint;
        Some(match entry.event.state {
            EventState::Waiting | EventState::Running => Claim::Accepted { same_body },
            EventState::Completed | EventState::Dead => Claim::Completed { same_body },
        })
    }

    /// Whether `key` was accepted under this very token, and nothing has come of it yet.
    pub(super) fn is_accepted_by(&self, key: &EventKey, token: ClaimToken) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| entry.token == token && entry.event.state == EventState::Waiting)
    }

    /// Puts an event in that is not here.
    pub(super) fn insert(&mut self, claim: &ClaimRequest<'_>, request: &StoredRequest, now: Now) {
        let arrival = self.next_arrival();
        self.entries.insert(claim.key.clone(), Entry::new(claim, request, arrival, now));
        self.arrive(claim.key, now);
    }

    pub(super) fn lease(&mut self, request: &LeaseRequest<'_>, now: Now) -> Vec<Leased> {
        let Self { entries, index, .. } = self;
        let type_of = |arrival| index.arrivals.get(&arrival).and_then(|key| entries.get(key)).map(Entry::event_type);
        let places = index.leasable.choose(request, now.elapsed, type_of);
        places.into_iter().filter_map(|(_, arrival)| self.lease_one(arrival, request.lease, now)).collect()
    }

    pub(super) fn renew(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Hold> {
        self.change_held(claim.key, claim.token, now, |entry| {
            entry.until = now.elapsed.saturating_add(claim.lease);
        })
    }

    /// Renews, and notes down that the handler is about to be called.
    pub(super) fn start(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Hold> {
        self.change_held(claim.key, claim.token, now, |entry| {
            entry.started = true;
            entry.until = now.elapsed.saturating_add(claim.lease);
        })
    }

    pub(super) fn settle(&mut self, claim: &ClaimRequest<'_>, ending: Ending<'_>, now: Now) -> Option<Hold> {
        match ending {
            Ending::Complete(completion) => self.complete(claim, &completion, now),
            Ending::Release => self.release(claim.key, claim.token, now),
            Ending::Retry { after, reason } => self.retry(claim, after, reason, now),
            Ending::Bury { reason } => self.bury(claim, reason, now),
        }
    }

    fn complete(&mut self, claim: &ClaimRequest<'_>, completion: &Completion<'_>, now: Now) -> Option<Hold> {
        if completion.failed {
            return self.bury(claim, completion.summary, now);
        }
        let again = self.is_settled(claim, EventState::Completed);
        again.or_else(|| {
            self.change_held(claim.key, claim.token, now, |entry| {
                entry.applied = true;
                entry.complete(completion.summary, completion.retention, now);
            })
        })
    }

    fn release(&mut self, key: &EventKey, token: ClaimToken, now: Now) -> Option<Hold> {
        self.change_held(key, token, now, |entry| {
            entry.event.state = EventState::Waiting;
            entry.event.attempts -= 1;
            entry.started = false;
            (entry.until, entry.event.due_at) = entry.due;
        })
    }

    fn retry(&mut self, claim: &ClaimRequest<'_>, after: Duration, reason: &str, now: Now) -> Option<Hold> {
        self.is_settled(claim, EventState::Waiting).or_else(|| {
            self.change_held(claim.key, claim.token, now, |entry| {
                entry.failed(reason, now);
                entry.event.state = EventState::Waiting;
                entry.event.due_at = now.wall.checked_add(after);
                entry.until = now.elapsed.saturating_add(after);
            })
        })
    }

    fn bury(&mut self, claim: &ClaimRequest<'_>, reason: &str, now: Now) -> Option<Hold> {
        self.is_settled(claim, EventState::Dead)
            .or_else(|| self.change_held(claim.key, claim.token, now, |entry| entry.bury(reason, now)))
    }

    /// Whether there are more completed events than are kept whole.
    pub(super) fn has_surplus(&self) -> bool {
        self.index.completed() > COMPLETED_KEPT
    }

    /// The record of the event that was completed the longest ago.
    pub(super) fn oldest_completed(&self) -> Option<Retired> {
        self.index.oldest_completed().and_then(|key| self.entries.get(key)).map(Entry::retired)
    }

    /// Takes out a completed event whose record is kept elsewhere.
    pub(super) fn retire(&mut self, key: &EventKey) {
        self.remove(key);
        self.retired += 1;
    }

    pub(super) fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }

    /// Gives an event its place behind everything that is waiting.
    pub(super) fn arrive(&mut self, key: &EventKey, now: Now) {
        let Some(entry) = self.entries.get(key) else { return };
        let arrival = entry.event.arrival;
        self.index.arrivals.insert(arrival, key.clone());
        if let Some(order) = entry.order() {
            self.index.lines.join(&order.key, arrival);
        }
        self.index.put(entry, now);
    }

    /// Changes an event, and whatever depends on its state.
    pub(super) fn change_one(&mut self, key: &EventKey, now: Now, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.index.take(entry);
        change(entry);
        let mut next = None;
        if matches!(entry.event.state, EventState::Completed | EventState::Dead)
            && let Some(order) = entry.order()
        {
            next = self.index.lines.leave(order, entry.event.arrival, entry.applied);
        }
        self.index.put(entry, now);
        let next = next.and_then(|arrival| self.index.arrivals.get(&arrival));
        if let Some(next) = next.and_then(|key| self.entries.get(key)) {
            self.index.offer(next);
        }
    }

    pub(super) fn remove(&mut self, key: &EventKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.index.take(&entry);
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
        leased.superseded = entry.order().is_some_and(|order| self.index.lines.has_applied(order));
        Some(leased)
    }

    /// Changes a running event that `token` holds; `None` if the event is not in the inbox.
    fn change_held(
        &mut self,
        key: &EventKey,
        token: ClaimToken,
        now: Now,
        change: impl FnOnce(&mut Entry),
    ) -> Option<Hold> {
        let entry = self.entries.get(key)?;
        if entry.event.state != EventState::Running || entry.token != token {
            return Some(Hold::Lost);
        }
        self.change_one(key, now, change);
        Some(Hold::Held)
    }

    /// Held, if the claim was brought to this state before and the reply lost.
    fn is_settled(&self, claim: &ClaimRequest<'_>, state: EventState) -> Option<Hold> {
        let entry = self.entries.get(claim.key)?;
        (entry.event.state == state && entry.token == claim.token).then_some(Hold::Held)
    }
}
