//! The events that were claimed or completed while the store was away.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::EventKey;
use crate::clock::LONGEST;
use crate::store::record::{self, Record, State, Verb};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold};

/// The retention of a completion whose time is just over: stores accept no zero.
const SHORTEST: Duration = Duration::from_millis(1);

/// The claims that the fallback gave while the store was away, until the store has their completions.
///
/// The journal decides these claims, also after the store is back. Every verb returns `None` for a key that is not in
/// the journal.
#[derive(Default)]
pub(super) struct Journal {
    entries: HashMap<EventKey, Entry>,
    /// The completed events, in the order of their completion.
    done: BTreeMap<u64, Arc<Completed>>,
    next_number: u64,
}

enum Entry {
    Running(Running),
    Done(Done),
}

struct Running {
    token: ClaimToken,
    fingerprint: Fingerprint,
    lease_end: Instant,
    /// Whether the store may have given the same claim.
    in_doubt: bool,
}

struct Done {
    number: u64,
    record: Arc<Completed>,
    /// Since when the store has answered that another claim holds the event.
    in_flight_since: Option<Instant>,
    is_reported: bool,
}

/// A completion that the store does not have yet.
#[derive(Debug)]
pub(super) struct Completed {
    pub(super) key: EventKey,
    pub(super) token: ClaimToken,
    pub(super) fingerprint: Fingerprint,
    event_type: Option<Box<str>>,
    lease: Duration,
    failed: bool,
    summary: Box<str>,
    pub(super) until: Instant,
}

impl Journal {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The number of completions that the store does not have.
    pub(super) fn done(&self) -> usize {
        self.done.len()
    }

    /// Answers a claim of a key that is running or done here.
    pub(super) fn claim(&mut self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let entry = self.find(request.key, now)?;
        let answer = record::claim(Some(entry.found_by(request, now)));
        match entry {
            Entry::Running(running) if running.token == request.token => running.lease_end = end(now, request.lease),
            // Lapsed.
            Entry::Running(_) if matches!(answer, Claim::Fresh { .. }) => return None,
            _ => {}
        }
        Some(answer)
    }

    pub(super) fn contains(&self, key: &EventKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Gives the key to the claimant, in place of one whose lease has lapsed.
    pub(super) fn insert(&mut self, request: &ClaimRequest<'_>, in_doubt: bool, now: Instant) {
        let &ClaimRequest { token, fingerprint, lease, .. } = request;
        let running = Running { token, fingerprint, lease_end: end(now, lease), in_doubt };
        self.entries.insert(request.key.clone(), Entry::Running(running));
    }

    /// Forgets a claim that lapsed, now that the store has given the key to another one.
    pub(super) fn forget_lapsed(&mut self, key: &EventKey) {
        if let Some(Entry::Running(_)) = self.entries.get(key) {
            self.entries.remove(key);
        }
    }

    pub(super) fn renew(&mut self, claim: &ClaimRequest<'_>, now: Instant) -> Option<Hold> {
        let entry = self.find(claim.key, now)?;
        let (hold, changes) = record::settle(Some(entry.found_by(claim, now)), Verb::Renew);
        if changes && let Entry::Running(running) = entry {
            running.lease_end = end(now, claim.lease);
        }
        Some(hold)
    }

    pub(super) fn complete(
        &mut self,
        claim: &ClaimRequest<'_>,
        completion: &Completion<'_>,
        now: Instant,
    ) -> Option<Hold> {
        let number = self.next_number;
        let entry = self.find(claim.key, now)?;
        let (hold, changes) = record::settle(Some(entry.found_by(claim, now)), Verb::Complete);
        if changes && let Entry::Running(running) = entry {
            let record = Arc::new(Completed::new(&claim.fingerprint(running.fingerprint), completion, now));
            *entry = Entry::Done(Done { number, record: record.clone(), in_flight_since: None, is_reported: false });
            self.done.insert(number, record);
            self.next_number += 1;
        }
        Some(hold)
    }

    /// Releases a claim. Also returns whether the store has to be asked, because it may have given the same claim.
    pub(super) fn release(&mut self, claim: &ClaimRequest<'_>, now: Instant) -> Option<(Hold, bool)> {
        let entry = self.find(claim.key, now)?;
        let (hold, changes) = record::settle(Some(entry.found_by(claim, now)), Verb::Release);
        let in_doubt = changes && matches!(entry, Entry::Running(Running { in_doubt: true, .. }));
        if changes {
            self.entries.remove(claim.key);
        }
        Some((hold, in_doubt))
    }

    /// Returns the next completions for the store, from this number on. Forgets those whose retention is over.
    pub(super) fn batch(&mut self, from: u64, size: usize, now: Instant) -> Vec<(u64, Arc<Completed>)> {
        while let Some((&number, record)) = self.done.range(from..).take(size).find(|(_, record)| record.until <= now) {
            self.entries.remove(&record.key);
            self.done.remove(&number);
        }
        self.done.range(from..).take(size).map(|(number, record)| (*number, record.clone())).collect()
    }

    /// Forgets a completion: the store has it, or another record that stands. Returns whether a conflict was reported
    /// before.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        let entry = self.done.remove(&number).and_then(|record| self.entries.remove(&record.key));
        matches!(entry, Some(Entry::Done(Done { is_reported: true, .. })))
    }

    /// Notes that another claim holds the event in the store. Returns whether it has for longer than a lease, and is to
    /// be reported.
    pub(super) fn in_flight_elsewhere(&mut self, record: &Completed, now: Instant) -> bool {
        let Some(Entry::Done(done)) = self.entries.get_mut(&record.key) else { return false };
        let since = *done.in_flight_since.get_or_insert(now);
        let is_due = !done.is_reported && now.saturating_duration_since(since) > record.lease;
        done.is_reported |= is_due;
        is_due
    }

    /// The entry, unless its retention is over.
    fn find(&mut self, key: &EventKey, now: Instant) -> Option<&mut Entry> {
        if let Some(Entry::Done(done)) = self.entries.get(key)
            && done.record.until <= now
        {
            let number = done.number;
            self.forget(number);
        }
        self.entries.get_mut(key)
    }
}

impl Entry {
    /// The entry as the caller of a verb finds it.
    fn found_by(&self, claim: &ClaimRequest<'_>, now: Instant) -> Record {
        let (state, token, fingerprint, until) = match self {
            Self::Running(running) => (State::Running, running.token, running.fingerprint, running.lease_end),
            Self::Done(Done { record, .. }) => (State::Completed, record.token, record.fingerprint, record.until),
        };
        Record {
            state,
            is_queued: false,
            is_own: token == claim.token,
            same_body: fingerprint == claim.fingerprint,
            has_lapsed: until <= now,
        }
    }
}

impl Completed {
    fn new(claim: &ClaimRequest<'_>, done: &Completion<'_>, now: Instant) -> Self {
        Self {
            key: claim.key.clone(),
            token: claim.token,
            fingerprint: claim.fingerprint,
            event_type: claim.event_type.map(Box::from),
            lease: claim.lease,
            failed: done.failed,
            summary: done.summary.into(),
            until: end(now, done.retention),
        }
    }

    /// The claim as the store would have been asked for it.
    pub(super) fn request(&self) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, self.token, self.lease)
            .fingerprint(self.fingerprint)
            .event_type(self.event_type.as_deref())
    }

    /// The completion, for the rest of its retention.
    pub(super) fn completion(&self, now: Instant) -> Completion<'_> {
        let retention = self.until.saturating_duration_since(now).max(SHORTEST);
        Completion { failed: self.failed, summary: &self.summary, retention }
    }
}

/// Returns the end of a lease or a retention that begins now.
pub(super) fn end(now: Instant, time: Duration) -> Instant {
    now + time.min(LONGEST)
}

/// An event that was completed on the fallback while the store was away, and of which the store has another record: two
/// instances have run it, or are about to. The store's record stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conflict {
    /// The event.
    pub key: EventKey,
    /// The claim under which it was completed on the fallback.
    pub token: ClaimToken,
    /// The record that the store has instead.
    pub found: FoundInStore,
    /// Whether that record's body has the same fingerprint.
    pub same_body: bool,
}

/// The record that the store has of an event that was completed without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FoundInStore {
    /// Another claim completed it.
    Completed,
    /// It is queued, and will be worked on.
    Accepted,
    /// Another claim holds it, and has for longer than a lease: its holder renews it.
    InFlight,
}

impl FoundInStore {
    /// The stable, lower-case name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Accepted => "accepted",
            Self::InFlight => "in_flight",
        }
    }
}

pub(super) type OnConflict = Arc<dyn Fn(&Conflict) + Send + Sync>;
