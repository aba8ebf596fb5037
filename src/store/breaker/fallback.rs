//! The decisions about claims while the store is away.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio::sync::watch;

use super::journal::{Completed, Conflict, Journal, OnConflict};
use super::store_claims::StoreClaims;
use crate::lock::lock;
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, StoreError, StoreErrorKind};
use crate::{EventKey, telemetry};

/// Decides claims in this process's memory while the store is away. Its lock is never held across an await.
pub(super) struct Fallback {
    claims: Mutex<Claims>,
    capacity: usize,
    on_conflict: Option<OnConflict>,
    /// The number of completions that the store does not have yet.
    pub(super) unreconciled: watch::Sender<usize>,
    given: AtomicU64,
    conflicts: AtomicU64,
}

#[derive(Default)]
struct Claims {
    journal: Journal,
    of_store: StoreClaims,
    /// Whether the last claim was refused for want of room.
    is_full: bool,
    is_reconciling: bool,
}

/// Where a claim that is renewed or released was given.
pub(super) enum GivenBy {
    /// The fallback gave it, and answers this.
    Fallback(Hold),
    /// The store gave it. `is_held` says whether to take it for held if the store cannot be asked.
    Store { is_held: bool },
}

impl Fallback {
    pub(super) fn new(capacity: usize, on_conflict: Option<OnConflict>) -> Self {
        Self {
            claims: Mutex::default(),
            capacity,
            on_conflict,
            unreconciled: watch::Sender::new(0),
            given: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
        }
    }

    /// The number of claims that the fallback has given.
    pub(super) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    pub(super) fn conflicts(&self) -> u64 {
        self.conflicts.load(Ordering::Relaxed)
    }

    /// Answers a claim that the store cannot answer better: of an event that runs here, or was completed here and is
    /// not confirmed.
    pub(super) fn known_only_here(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let mut claims = lock(&self.claims);
        claims.journal.claim(request, now).or_else(|| claims.of_store.known_only_here(request, now))
    }

    /// Decides a claim without the store. `in_doubt` says that the store may have given it, too.
    pub(super) fn claim(&self, request: &ClaimRequest<'_>, in_doubt: bool, now: Instant) -> Result<Claim, StoreError> {
        let mut claims = lock(&self.claims);
        if let Some(claim) = claims.journal.claim(request, now).or_else(|| claims.of_store.claim(request, now)) {
            return Ok(claim);
        }
        claims.of_store.remove(request.key);
        let has_room = claims.journal.contains(request.key) || claims.make_room(self.capacity, now);
        let fills_up = !has_room && !claims.is_full;
        claims.is_full = !has_room;
        if has_room {
            claims.journal.insert(request, in_doubt, now);
        }
        drop(claims);
        if has_room {
            self.given.fetch_add(1, Ordering::Relaxed);
            telemetry::fallback_claimed(request.key);
            return Ok(Claim::Fresh { attempt: None });
        }
        if fills_up {
            telemetry::fallback_full(self.capacity);
        }
        Err(StoreError::new(StoreErrorKind::Full))
    }

    /// Records a claim that the store has given. If the event was claimed here while the store was deciding, that
    /// answer stands and is returned: the store's claim has to be released.
    pub(super) fn record_store_claim(&self, request: &ClaimRequest<'_>, now: Instant) -> Option<Claim> {
        let mut claims = lock(&self.claims);
        let here = claims.journal.claim(request, now);
        if here.is_none() {
            claims.journal.forget_lapsed(request.key);
            // A running claim is remembered whether there is room or not; there are not many.
            claims.make_room(self.capacity, now);
            claims.of_store.insert_running(request, now);
        }
        here
    }

    pub(super) fn renew(&self, claim: &ClaimRequest<'_>, now: Instant) -> GivenBy {
        let mut claims = lock(&self.claims);
        match claims.journal.renew(claim, now) {
            Some(hold) => GivenBy::Fallback(hold),
            None => GivenBy::Store { is_held: claims.of_store.renew(claim, now) },
        }
    }

    /// Completes a claim that the fallback gave; `None`, if the store has to answer.
    pub(super) fn complete(&self, claim: &ClaimRequest<'_>, completion: &Completion<'_>, now: Instant) -> Option<Hold> {
        let mut claims = lock(&self.claims);
        let hold = claims.journal.complete(claim, completion, now);
        match hold {
            Some(_) => self.count(&claims),
            None => {
                claims.of_store.complete(claim, completion, now);
                claims.of_store.trim(self.capacity);
            }
        }
        hold
    }

    pub(super) fn release(&self, claim: &ClaimRequest<'_>, now: Instant) -> GivenBy {
        let mut claims = lock(&self.claims);
        match claims.journal.release(claim, now) {
            Some((_, true)) => GivenBy::Store { is_held: true },
            Some((hold, false)) => GivenBy::Fallback(hold),
            None => {
                claims.of_store.forget(claim.key, claim.token);
                GivenBy::Store { is_held: false }
            }
        }
    }

    /// Notes the store's answer to a completion.
    pub(super) fn completed(&self, key: &EventKey, token: ClaimToken, hold: Hold) {
        let mut claims = lock(&self.claims);
        match hold {
            Hold::Held => claims.of_store.confirm(key, token),
            Hold::Lost => claims.of_store.forget(key, token),
        }
        claims.of_store.trim(self.capacity);
    }

    /// Notes that the store refused a renewal.
    pub(super) fn lost(&self, key: &EventKey, token: ClaimToken) {
        lock(&self.claims).of_store.forget_running(key, token);
    }

    /// Returns whether to start a task that reconciles: there are completions for the store, and no such task.
    pub(super) fn begin_reconciling(&self) -> bool {
        let mut claims = lock(&self.claims);
        let begin = claims.journal.done() > 0 && !claims.is_reconciling;
        claims.is_reconciling |= begin;
        begin
    }

    /// Returns whether the task is to end: the store has all completions.
    pub(super) fn end_reconciling(&self) -> bool {
        let mut claims = lock(&self.claims);
        claims.is_reconciling = claims.journal.done() > 0;
        !claims.is_reconciling
    }

    pub(super) fn stop_reconciling(&self) {
        lock(&self.claims).is_reconciling = false;
    }

    pub(super) fn batch(&self, from: u64, size: usize, now: Instant) -> Vec<(u64, Arc<Completed>)> {
        let mut claims = lock(&self.claims);
        let batch = claims.journal.batch(from, size, now);
        self.count(&claims);
        batch
    }

    /// Notes that the store has another record of the event, which stands.
    pub(super) fn conflicted(&self, number: u64, completed: &Completed, conflict: &Conflict) {
        if !self.transferred(number, completed) {
            self.report(conflict);
        }
    }

    /// Notes that another claim holds the event in the store. Its holder may be gone: the conflict is reported once the
    /// claim has outlived a lease, and the journal keeps the event until the claim ends.
    pub(super) fn in_flight_elsewhere(&self, completed: &Completed, conflict: &Conflict, now: Instant) {
        let is_due = lock(&self.claims).journal.in_flight_elsewhere(completed, now);
        if is_due {
            self.report(conflict);
        }
    }

    /// Notes that the store knows of the completion now. Returns whether a conflict was reported before.
    pub(super) fn transferred(&self, number: u64, completed: &Completed) -> bool {
        let mut claims = lock(&self.claims);
        let was_reported = claims.journal.forget(number);
        claims.of_store.insert_done(&completed.key, completed.token, completed.fingerprint, completed.until);
        claims.of_store.trim(self.capacity);
        self.count(&claims);
        was_reported
    }

    fn report(&self, conflict: &Conflict) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
        telemetry::fallback_conflict(&conflict.key, conflict.token, conflict.found.as_str());
        if let Some(callback) = &self.on_conflict {
            // A callback that panics must not keep the rest of the journal from the store.
            let _ = catch_unwind(AssertUnwindSafe(|| callback(conflict)));
        }
    }

    fn count(&self, claims: &Claims) {
        let done = claims.journal.done();
        self.unreconciled.send_if_modified(|count| std::mem::replace(count, done) != done);
    }
}

impl Claims {
    /// Returns whether there is room for one more. Only events that the store knows as completed make room.
    fn make_room(&mut self, capacity: usize, now: Instant) -> bool {
        while self.journal.len() + self.of_store.len() >= capacity {
            if !self.of_store.evict(now) {
                return false;
            }
        }
        true
    }
}
