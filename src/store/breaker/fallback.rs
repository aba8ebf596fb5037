use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::conflict::{Conflict, OnConflict};
use super::journal::{Journal, Record};
use super::recent::Recent;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, StoreError, StoreErrorKind};
use crate::{EventKey, telemetry};

/// What decides claims while the store is away, in this process's memory. One lock, never held across an await.
pub(super) struct Fallback {
    books: Mutex<Books>,
    capacity: usize,
    on_conflict: Option<OnConflict>,
    /// How much of the journal is done and not yet in the store.
    unreconciled: watch::Sender<usize>,
    claims: AtomicU64,
    conflicts: AtomicU64,
}

#[derive(Default)]
struct Books {
    journal: Journal,
    recent: Recent,
    /// Somebody has been refused for want of room, and nobody admitted since.
    is_full: bool,
    is_reconciling: bool,
}

/// Where a claim that is to be renewed or released lives.
pub(super) enum Home {
    /// Here, and this is the answer.
    Here(Hold),
    /// In the store. Whether it is taken for held when that cannot be asked.
    Store { is_held: bool },
}

impl Fallback {
    pub(super) fn new(capacity: usize, on_conflict: Option<OnConflict>) -> Self {
        Self {
            books: Mutex::default(),
            capacity,
            on_conflict,
            unreconciled: watch::Sender::new(0),
            claims: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
        }
    }

    /// How often a claim was given here.
    pub(super) fn claims(&self) -> u64 {
        self.claims.load(Ordering::Relaxed)
    }

    pub(super) fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    pub(super) fn unreconciled(&self) -> &watch::Sender<usize> {
        &self.unreconciled
    }

    /// What the store cannot know better: an event that runs here, or whose work is done here and not yet confirmed there.
    pub(super) fn known(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let mut books = self.lock();
        books.journal.claim(request, now).or_else(|| books.recent.at_work(request, now))
    }

    /// Decides a claim without the store. It is in doubt if the store may have given it, too.
    pub(super) fn claim(&self, request: &ClaimRequest<'_>, in_doubt: bool, now: Instant) -> Result<Claim, StoreError> {
        let mut books = self.lock();
        if let Some(claim) = books.journal.claim(request, now).or_else(|| books.recent.claim(request, now)) {
            return Ok(claim);
        }
        books.recent.overtaken(request.key);
        let has_room = books.journal.contains(request.key) || books.make_room(self.capacity, now);
        let fills_up = !has_room && !books.is_full;
        books.is_full = !has_room;
        if has_room {
            books.journal.insert(request, in_doubt, now);
        }
        drop(books);
        if has_room {
            self.claims.fetch_add(1, Ordering::Relaxed);
            telemetry::fallback_claimed(request.key);
            return Ok(Claim::Fresh { attempt: None });
        }
        if fills_up {
            telemetry::fallback_full(self.capacity);
        }
        Err(StoreError::new(StoreErrorKind::Full))
    }

    /// The store has given a claim. `Some` when the event was claimed here while the store was making up its mind: that
    /// answer stands, and the store's claim is to be given back.
    pub(super) fn took(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let mut books = self.lock();
        let here = books.journal.claim(request, now);
        if here.is_none() {
            books.journal.overtaken(request.key);
            // A claim that runs is remembered whether there is room or not; there are not many.
            books.make_room(self.capacity, now);
            books.recent.took(request, now);
        }
        here
    }

    pub(super) fn renew(&self, claim: &ClaimRequest<'_>, now: Instant) -> Home {
        let mut books = self.lock();
        match books.journal.renew(claim, now) {
            Some(hold) => Home::Here(hold),
            None => Home::Store { is_held: books.recent.renew(claim, now) },
        }
    }

    /// `None` if it is the store's to say.
    pub(super) fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>, now: Instant) -> Option<Hold> {
        let mut books = self.lock();
        let hold = books.journal.complete(claim, completion, now);
        match hold {
            Some(_) => self.count(&books),
            None => {
                books.recent.complete(claim, completion, now);
                books.recent.trim(self.capacity);
            }
        }
        hold
    }

    pub(super) fn release(&self, key: &EventKey, token: ClaimToken, now: Instant) -> Home {
        let mut books = self.lock();
        match books.journal.release(key, token, now) {
            Some((_, true)) => Home::Store { is_held: true },
            Some((hold, false)) => Home::Here(hold),
            None => {
                books.recent.forget(key, token);
                Home::Store { is_held: false }
            }
        }
    }

    /// What the store said to a completion.
    pub(super) fn completed(&self, key: &EventKey, token: ClaimToken, hold: Hold) {
        let mut books = self.lock();
        match hold {
            Hold::Held => books.recent.confirm(key, token),
            Hold::Lost => books.recent.forget(key, token),
        }
        books.recent.trim(self.capacity);
    }

    /// The store refused a renewal.
    pub(super) fn lost(&self, key: &EventKey, token: ClaimToken) {
        self.lock().recent.lost(key, token);
    }

    /// Whether there is something to tell the store, and nobody who does.
    pub(super) fn begin_reconciling(&self) -> bool {
        let mut books = self.lock();
        let begin = books.journal.done() > 0 && !books.is_reconciling;
        books.is_reconciling |= begin;
        begin
    }

    /// Whether there is nothing left to tell, and whoever told has stopped.
    pub(super) fn end_reconciling(&self) -> bool {
        let mut books = self.lock();
        books.is_reconciling = books.journal.done() > 0;
        !books.is_reconciling
    }

    pub(super) fn stop_reconciling(&self) {
        self.lock().is_reconciling = false;
    }

    pub(super) fn batch(&self, from: u64, size: usize, now: Instant) -> Vec<(u64, Arc<Record>)> {
        let mut books = self.lock();
        let batch = books.journal.batch(from, size, now);
        self.count(&books);
        batch
    }

    /// The store knows of it now.
    pub(super) fn transferred(&self, number: u64, record: &Record) {
        self.close(number, record);
    }

    /// The store knows otherwise, and that stands.
    pub(super) fn conflicted(&self, number: u64, record: &Record, conflict: &Conflict) {
        if !self.close(number, record) {
            self.tell(conflict);
        }
    }

    /// Somebody holds it in the store, which may be a claim that nobody is going to settle: it is told once it has outlived
    /// a lease, and the journal keeps the event until there is an end.
    pub(super) fn in_flight_elsewhere(&self, record: &Record, conflict: &Conflict, now: Instant) {
        let tell = self.lock().journal.in_flight_elsewhere(record, now);
        if tell {
            self.tell(conflict);
        }
    }

    fn close(&self, number: u64, record: &Record) -> bool {
        let mut books = self.lock();
        let told = books.journal.forget(number);
        books.recent.insert_done(&record.key, record.token, record.fingerprint(), record.until());
        books.recent.trim(self.capacity);
        self.count(&books);
        told
    }

    fn tell(&self, conflict: &Conflict) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
        telemetry::fallback_conflict(&conflict.key, conflict.token, conflict.found.as_str());
        if let Some(callback) = &self.on_conflict {
            // A callback that panics must not keep the rest of the journal from the store.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(conflict)));
        }
    }

    fn count(&self, books: &Books) {
        let done = books.journal.done();
        self.unreconciled.send_if_modified(|count| std::mem::replace(count, done) != done);
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    /// Whether there is room for one more. What can go is what the store knows to be done.
    fn make_room(&mut self, capacity: usize, now: Instant) -> bool {
        while self.journal.len() + self.recent.len() >= capacity {
            if !self.recent.evict(now) {
                return false;
            }
        }
        true
    }
}
