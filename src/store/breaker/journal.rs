use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::EventKey;
use crate::clock::LONGEST;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold};

/// A retention that is just over is still one that stores accept.
const SHORTEST: Duration = Duration::from_millis(1);

/// The claims that were made here because the store was away, until it knows of them.
///
/// What is in here is decided here, also after the store is back: for every verb, `None` means that the journal has nothing
/// to say about the key.
#[derive(Default)]
pub(super) struct Journal {
    entries: HashMap<EventKey, Entry>,
    /// What is done, in the order in which it was.
    done: BTreeMap<u64, Arc<Record>>,
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
    /// Whether the store may have given the claim, too.
    in_doubt: bool,
}

struct Done {
    number: u64,
    record: Arc<Record>,
    /// Since when the store has said that somebody else holds it.
    in_flight_since: Option<Instant>,
    told: bool,
}

/// All that the store is to be told of an event.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) key: EventKey,
    pub(super) token: ClaimToken,
    fingerprint: Fingerprint,
    event_type: Option<Box<str>>,
    lease: Duration,
    failed: bool,
    summary: Box<str>,
    until: Instant,
}

impl Journal {
    /// Running and done.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn done(&self) -> usize {
        self.done.len()
    }

    /// The answer to a claim of a key that is held or done here.
    pub(super) fn claim(&mut self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        match self.find(request.key, now)? {
            Entry::Done(done) => Some(Claim::Completed { same_body: done.record.fingerprint == request.fingerprint }),
            Entry::Running(running) if running.token == request.token => {
                running.lease_end = end(now, request.lease);
                Some(Claim::Fresh { attempt: None })
            }
            Entry::Running(running) if now < running.lease_end => {
                Some(Claim::InFlight { same_body: running.fingerprint == request.fingerprint })
            }
            Entry::Running(_) => None,
        }
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

    /// Forgets a claim that lapsed, now that somebody has the key from the store.
    pub(super) fn overtaken(&mut self, key: &EventKey) {
        if let Some(Entry::Running(_)) = self.entries.get(key) {
            self.entries.remove(key);
        }
    }

    pub(super) fn renew(&mut self, claim: &ClaimRequest<'_>, now: Instant) -> Option<Hold> {
        Some(match self.find(claim.key, now)? {
            Entry::Running(running) if running.token == claim.token => {
                running.lease_end = end(now, claim.lease);
                Hold::Held
            }
            _ => Hold::Lost,
        })
    }

    pub(super) fn complete(&mut self, claim: &ClaimRequest<'_>, done: &Completion<'_>, now: Instant) -> Option<Hold> {
        let number = self.next_number;
        let entry = self.find(claim.key, now)?;
        let fingerprint = match entry {
            Entry::Running(running) if running.token == claim.token => running.fingerprint,
            Entry::Done(done) if done.record.token == claim.token => return Some(Hold::Held),
            _ => return Some(Hold::Lost),
        };
        let record = Arc::new(Record::new(&claim.fingerprint(fingerprint), done, now));
        *entry = Entry::Done(Done { number, record: record.clone(), in_flight_since: None, told: false });
        self.done.insert(number, record);
        self.next_number += 1;
        Some(Hold::Held)
    }

    /// With whether the store has to be asked, too.
    pub(super) fn release(&mut self, key: &EventKey, token: ClaimToken, now: Instant) -> Option<(Hold, bool)> {
        let in_doubt = match self.find(key, now)? {
            Entry::Running(running) if running.token == token => running.in_doubt,
            _ => return Some((Hold::Lost, false)),
        };
        self.entries.remove(key);
        Some((Hold::Held, in_doubt))
    }

    /// What the store is to be told next, from this number on. What its retention no longer covers is forgotten.
    pub(super) fn batch(&mut self, from: u64, size: usize, now: Instant) -> Vec<(u64, Arc<Record>)> {
        while let Some((&number, record)) = self.done.range(from..).take(size).find(|(_, record)| record.until <= now) {
            self.entries.remove(&record.key);
            self.done.remove(&number);
        }
        self.done.range(from..).take(size).map(|(number, record)| (*number, record.clone())).collect()
    }

    /// The store has it, or has something else that stands. Whether the operator knows of somebody else already.
    pub(super) fn forget(&mut self, number: u64) -> bool {
        let entry = self.done.remove(&number).and_then(|record| self.entries.remove(&record.key));
        matches!(entry, Some(Entry::Done(Done { told: true, .. })))
    }

    /// Somebody holds it in the store. Whether that has outlived a lease, and is to be told.
    pub(super) fn in_flight_elsewhere(&mut self, record: &Record, now: Instant) -> bool {
        let Some(Entry::Done(done)) = self.entries.get_mut(&record.key) else { return false };
        let since = *done.in_flight_since.get_or_insert(now);
        let tell = !done.told && now.saturating_duration_since(since) > record.lease;
        done.told |= tell;
        tell
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

impl Record {
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

    /// The claim as it would have been made.
    pub(super) fn request(&self) -> ClaimRequest<'_> {
        ClaimRequest::new(&self.key, self.token, self.lease)
            .fingerprint(self.fingerprint)
            .event_type(self.event_type.as_deref())
    }

    /// The completion, for what is left of its retention.
    pub(super) fn completion(&self, now: Instant) -> Completion<'_> {
        let retention = self.until.saturating_duration_since(now).max(SHORTEST);
        match self.failed {
            true => Completion::failed(&self.summary, retention),
            false => Completion::succeeded(&self.summary, retention),
        }
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// The end of a lease or retention that begins now.
pub(super) fn end(now: Instant, time: Duration) -> Instant {
    now + time.min(LONGEST)
}
