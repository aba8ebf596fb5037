//! The events of an inbox, kept whole: every state, in one place and under one lock.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, SystemTime};

use super::line::Lines;
use crate::EventKey;
use crate::inbox::{
    EventState, FailedAttempt, Filter, InboxCounts, KeptEvent, KindRooms, LAPSED, LeaseRequest, Leased, Page, Parcel,
    Requeued,
};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold};

/// How many completed events are kept whole, for operators. Of older ones only the record that tells duplicates is.
pub(super) const COMPLETED_KEPT: usize = 10_000;

const DISCARDED: &str = "discarded by an operator";

/// Both readings of the store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Since the store was built.
    pub(super) elapsed: Duration,
    pub(super) wall: SystemTime,
}

/// An event of the inbox.
#[derive(Debug)]
struct Entry {
    event: KeptEvent,
    token: ClaimToken,
    fingerprint: Fingerprint,
    started_at: SystemTime,
    /// Whether a handler was started in the last attempt that its worker permits.
    started: bool,
    /// Whether it was run, and not only discarded.
    applied: bool,
    /// While it runs: since when it was due before, by both clocks.
    due: (Duration, Option<SystemTime>),
    /// While it waits: when it is due. While it runs: when its lease ends. Completed: when it is forgotten.
    until: Duration,
}

/// A completed event that is not kept whole any more.
pub(super) struct Retired {
    pub(super) key: EventKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) token: ClaimToken,
    pub(super) retention: Duration,
    pub(super) summary: Box<str>,
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    entries: HashMap<EventKey, Entry>,
    arrivals: BTreeMap<u64, EventKey>,
    last_arrival: u64,
    /// What may be leased, by when: waiting events that are first in their line, and running ones.
    leasable: BTreeSet<(Duration, u64)>,
    lines: Lines,
    completed: VecDeque<(u64, EventKey)>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What a claim of `key` is answered, if the inbox has it. A completed event whose time is over is forgotten.
    pub(super) fn answer(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Claim> {
        let entry = self.entries.get(claim.key)?;
        let same_body = entry.fingerprint == claim.fingerprint;
        match entry.event.state {
            EventState::Waiting | EventState::Running => Some(Claim::Accepted { same_body }),
            EventState::Completed if entry.until <= now.elapsed => {
                self.remove(&claim.key.clone());
                None
            }
            EventState::Completed | EventState::Dead => Some(Claim::Completed { same_body }),
        }
    }

    /// Whether `key` was accepted under this very token, and nothing has come of it yet.
    pub(super) fn is_accepted_by(&self, key: &EventKey, token: ClaimToken) -> bool {
        let entry = self.entries.get(key);
        entry.is_some_and(|entry| entry.token == token && entry.event.state == EventState::Waiting)
    }

    /// Puts an event in that is not here.
    pub(super) fn insert(&mut self, claim: &ClaimRequest<'_>, parcel: &Parcel, now: Now) {
        let arrival = self.next_arrival();
        let mut event = KeptEvent::new(claim.key.clone(), arrival, parcel.received_at);
        event.event_type = claim.event_type.map(Box::from);
        event.due_at = Some(now.wall);
        event.parcel = Some(parcel.clone());
        let entry = Entry {
            event,
            token: claim.token,
            fingerprint: claim.fingerprint,
            started_at: now.wall,
            started: false,
            applied: false,
            due: (now.elapsed, Some(now.wall)),
            until: now.elapsed,
        };
        self.entries.insert(claim.key.clone(), entry);
        self.arrive(claim.key, arrival);
    }

    pub(super) fn lease(&mut self, request: &LeaseRequest<'_>, now: Now) -> Vec<Leased> {
        let mut rooms = KindRooms::new(request);
        let due = self.leasable.range(..=(now.elapsed, u64::MAX)).copied();
        let due: Vec<_> = due.filter(|(_, arrival)| self.suits(*arrival, &mut rooms)).take(request.limit).collect();
        due.into_iter().filter_map(|place| self.lease_one(place, request.lease, now)).collect()
    }

    pub(super) fn renew(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Hold> {
        self.settle(claim.key, claim.token, |entry| {
            entry.until = now.elapsed.saturating_add(claim.lease);
        })
    }

    /// Renews, and notes down that the handler is about to be called.
    pub(super) fn start(&mut self, claim: &ClaimRequest<'_>, now: Now) -> Option<Hold> {
        self.settle(claim.key, claim.token, |entry| {
            entry.started = true;
            entry.until = now.elapsed.saturating_add(claim.lease);
        })
    }

    pub(super) fn complete(&mut self, claim: &ClaimRequest<'_>, completion: &Completion<'_>, now: Now) -> Option<Hold> {
        if completion.failed {
            return self.bury(claim, completion.summary, now);
        }
        let again = self.is_settled(claim, EventState::Completed);
        again.or_else(|| {
            self.settle(claim.key, claim.token, |entry| {
                entry.ended(EventState::Completed, completion.summary, now);
                entry.applied = true;
                entry.until = now.elapsed.saturating_add(completion.retention);
            })
        })
    }

    pub(super) fn release(&mut self, key: &EventKey, token: ClaimToken) -> Option<Hold> {
        self.settle(key, token, |entry| {
            entry.event.state = EventState::Waiting;
            entry.event.attempts -= 1;
            (entry.until, entry.event.due_at) = entry.due;
        })
    }

    pub(super) fn retry(&mut self, claim: &ClaimRequest<'_>, after: Duration, reason: &str, now: Now) -> Option<Hold> {
        self.is_settled(claim, EventState::Waiting).or_else(|| {
            self.settle(claim.key, claim.token, |entry| {
                entry.failed(reason, now);
                entry.event.state = EventState::Waiting;
                entry.event.due_at = now.wall.checked_add(after);
                entry.until = now.elapsed.saturating_add(after);
            })
        })
    }

    pub(super) fn bury(&mut self, claim: &ClaimRequest<'_>, reason: &str, now: Now) -> Option<Hold> {
        self.is_settled(claim, EventState::Dead).or_else(|| {
            self.settle(claim.key, claim.token, |entry| {
                entry.failed(reason, now);
                entry.ended(EventState::Dead, reason, now);
            })
        })
    }

    pub(super) fn waiting(&self, up_to: u64) -> u64 {
        let waiting = self.entries.values().filter(|entry| entry.event.state == EventState::Waiting);
        waiting.take(usize::try_from(up_to).unwrap_or(usize::MAX)).count() as u64
    }

    pub(super) fn list(&self, filter: &Filter, page: &Page) -> Vec<KeptEvent> {
        let after = page.after.map_or(0, |last| last.saturating_add(1));
        let events = self.arrivals.range(after..).filter_map(|(_, key)| Some(&self.entries.get(key)?.event));
        let events = events.filter(|event| filter.matches(event)).take(page.limit);
        events.map(|event| KeptEvent { failures: Vec::new(), parcel: None, ..event.clone() }).collect()
    }

    pub(super) fn get(&self, key: &EventKey) -> Option<KeptEvent> {
        self.entries.get(key).map(|entry| entry.event.clone())
    }

    pub(super) fn requeue(&mut self, filter: &Filter, states: &[EventState], now: Now) -> Requeued {
        let keys = self.matching(filter, states);
        for key in &keys {
            let arrival = self.next_arrival();
            let Some(entry) = self.entries.get_mut(key) else { continue };
            let before = std::mem::replace(&mut entry.event.arrival, arrival);
            entry.event.state = EventState::Waiting;
            (entry.event.attempts, entry.started, entry.applied) = (0, false, false);
            (entry.event.summary, entry.event.processed_at) = (None, None);
            // Nobody's: whoever gave it up must not be taken for the one that puts it back.
            entry.token = ClaimToken::random();
            (entry.event.due_at, entry.until) = (Some(now.wall), now.elapsed);
            self.arrivals.remove(&before);
            self.arrive(key, arrival);
        }
        Requeued::new(keys.len() as u64, 0)
    }

    pub(super) fn discard(&mut self, filter: &Filter, retention: Duration, now: Now) -> u64 {
        let keys = self.matching(filter, &[EventState::Waiting, EventState::Dead]);
        for key in &keys {
            self.change(key, |entry| {
                entry.ended(EventState::Completed, DISCARDED, now);
                entry.until = now.elapsed.saturating_add(retention);
            });
        }
        keys.len() as u64
    }

    pub(super) fn forget(&mut self, filter: &Filter) -> u64 {
        let keys = self.matching(filter, &[EventState::Completed, EventState::Dead]);
        keys.iter().for_each(|key| self.remove(key));
        keys.len() as u64
    }

    pub(super) fn counts(&self, now: Now) -> InboxCounts {
        let mut counts = InboxCounts::default();
        for Entry { event, until, .. } in self.entries.values() {
            match event.state {
                EventState::Waiting => {
                    counts.waiting += 1;
                    let age = now.wall.duration_since(event.received_at).unwrap_or_default();
                    if *until <= now.elapsed {
                        counts.oldest_waiting = counts.oldest_waiting.max(Some(age));
                    }
                }
                EventState::Running => counts.running += 1,
                EventState::Completed => counts.completed += 1,
                EventState::Dead => counts.dead += 1,
            }
        }
        counts
    }

    /// Takes out a completed event that there is no room for.
    pub(super) fn retire(&mut self, now: Now) -> Option<Retired> {
        while self.completed.len() > COMPLETED_KEPT {
            let (arrival, key) = self.completed.pop_front()?;
            let Some(entry) = self.entries.get(&key) else { continue };
            if entry.event.arrival != arrival || entry.event.state != EventState::Completed {
                continue;
            }
            let (fingerprint, token) = (entry.fingerprint, entry.token);
            let retention = entry.until.saturating_sub(now.elapsed);
            let summary = entry.event.summary.clone().unwrap_or_default();
            self.remove(&key);
            return Some(Retired { key, fingerprint, token, retention, summary });
        }
        None
    }

    fn next_arrival(&mut self) -> u64 {
        self.last_arrival += 1;
        self.last_arrival
    }

    /// Takes its place behind everything that is waiting.
    fn arrive(&mut self, key: &EventKey, arrival: u64) {
        self.arrivals.insert(arrival, key.clone());
        if let Some(entry) = self.entries.get(key) {
            if let Some(order) = entry.order() {
                self.lines.join(&order.key, arrival);
            }
            self.offer(arrival);
        }
    }

    /// Puts an event among those that may be leased, if it may.
    fn offer(&mut self, arrival: u64) {
        let Some(entry) = self.arrivals.get(&arrival).and_then(|key| self.entries.get(key)) else { return };
        let is_open = matches!(entry.event.state, EventState::Waiting | EventState::Running);
        let is_first = entry.order().is_none_or(|order| self.lines.is_first(&order.key, arrival));
        if is_open && is_first {
            self.leasable.insert((entry.until, arrival));
        }
    }

    fn suits(&self, arrival: u64, rooms: &mut KindRooms<'_>) -> bool {
        let entry = self.arrivals.get(&arrival).and_then(|key| self.entries.get(key));
        entry.is_some_and(|entry| rooms.enter(entry.event.key.endpoint(), entry.event.event_type.as_deref()))
    }

    fn lease_one(&mut self, (_, arrival): (Duration, u64), lease: Duration, now: Now) -> Option<Leased> {
        let key = self.arrivals.get(&arrival)?.clone();
        self.change(&key, |entry| {
            if entry.event.state == EventState::Running {
                entry.failed(LAPSED, now);
            } else {
                entry.due = (entry.until, entry.event.due_at);
            }
            entry.event.state = EventState::Running;
            entry.event.attempts = entry.event.attempts.saturating_add(1);
            entry.event.due_at = None;
            (entry.token, entry.started_at) = (ClaimToken::random(), now.wall);
            entry.until = now.elapsed.saturating_add(lease);
        });
        let entry = self.entries.get(&key)?;
        let mut leased = Leased::new(key, entry.token, entry.event.parcel.clone()?);
        leased.attempt = entry.event.attempts;
        leased.event_type = entry.event.event_type.clone();
        leased.fingerprint = entry.fingerprint;
        leased.started = entry.started;
        leased.superseded = entry.order().is_some_and(|order| self.lines.has_applied(order));
        Some(leased)
    }

    /// Changes a running event that `token` holds; `None` if the event is not in the inbox.
    fn settle(&mut self, key: &EventKey, token: ClaimToken, change: impl FnOnce(&mut Entry)) -> Option<Hold> {
        let entry = self.entries.get(key)?;
        if entry.event.state != EventState::Running || entry.token != token {
            return Some(Hold::Lost);
        }
        self.change(key, change);
        Some(Hold::Held)
    }

    /// Held, if the claim was brought to this state before and the reply lost.
    fn is_settled(&self, claim: &ClaimRequest<'_>, state: EventState) -> Option<Hold> {
        let entry = self.entries.get(claim.key)?;
        (entry.event.state == state && entry.token == claim.token).then_some(Hold::Held)
    }

    /// Changes an event, and whatever depends on its state.
    fn change(&mut self, key: &EventKey, change: impl FnOnce(&mut Entry)) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        self.leasable.remove(&(entry.until, entry.event.arrival));
        change(entry);
        let (state, arrival, applied, order) =
            (entry.event.state, entry.event.arrival, entry.applied, entry.order().cloned());
        if let Some(order) = order
            && matches!(state, EventState::Completed | EventState::Dead)
        {
            let next = self.lines.leave(&order, arrival, applied);
            next.into_iter().for_each(|next| self.offer(next));
        }
        if state == EventState::Completed {
            self.completed.push_back((arrival, key.clone()));
        }
        self.offer(arrival);
    }

    fn remove(&mut self, key: &EventKey) {
        if let Some(entry) = self.entries.remove(key) {
            self.arrivals.remove(&entry.event.arrival);
            self.leasable.remove(&(entry.until, entry.event.arrival));
        }
    }

    fn matching(&self, filter: &Filter, states: &[EventState]) -> Vec<EventKey> {
        let events = self.arrivals.values().filter_map(|key| Some(&self.entries.get(key)?.event));
        let events = events.filter(|event| states.contains(&event.state) && filter.matches(event));
        events.map(|event| event.key.clone()).collect()
    }
}

impl Entry {
    fn order(&self) -> Option<&crate::inbox::Order> {
        self.event.parcel.as_ref()?.order.as_ref()
    }

    fn failed(&mut self, reason: &str, now: Now) {
        let (started_at, ended_at) = (self.started_at, now.wall);
        self.event.failures.push(FailedAttempt { started_at, ended_at, reason: reason.into() });
    }

    fn ended(&mut self, state: EventState, summary: &str, now: Now) {
        self.event.state = state;
        self.event.summary = Some(summary.into());
        (self.event.processed_at, self.event.due_at) = (Some(now.wall), None);
    }
}
