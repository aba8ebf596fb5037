//! One event of the queue.

use std::time::{Duration, SystemTime};

use crate::store::queue::{EventState, FailedAttempt, LAPSED, Order, QueuedEvent, StoredRequest};
use crate::store::record::Record;
use crate::store::{ClaimRequest, ClaimToken, Fingerprint};

/// Both readings of the store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Since the store was built.
    pub(super) elapsed: Duration,
    pub(super) wall: SystemTime,
}

/// An event, and all that the queue knows of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) event: QueuedEvent,
    pub(super) token: ClaimToken,
    pub(super) fingerprint: Fingerprint,
    pub(super) started_at: SystemTime,
    /// Whether a handler was started in the last attempt that its worker permits.
    pub(super) started: bool,
    /// Whether the event was run, and not only discarded.
    pub(super) applied: bool,
    /// From when on a worker may lease the event: a running event when its lease ends.
    pub(super) leasable_from: Duration,
    /// While the event runs: `leasable_from` and the event's `due_at` from before the lease.
    pub(super) was_due_at: (Duration, Option<SystemTime>),
    /// When the event was completed.
    pub(super) completed_at: Duration,
    /// From when on a completed event is forgotten.
    pub(super) expires_at: Duration,
}

impl Entry {
    /// Creates an event that arrives now, and is due at once.
    pub(super) fn new(claim: &ClaimRequest<'_>, request: &StoredRequest, arrival: u64, now: Now) -> Self {
        let mut event = QueuedEvent::new(claim.key.clone(), arrival, request.received_at);
        event.event_type = claim.event_type.map(Box::from);
        event.due_at = Some(now.wall);
        event.request = Some(request.clone());
        Self {
            event,
            token: claim.token,
            fingerprint: claim.fingerprint,
            started_at: now.wall,
            started: false,
            applied: false,
            leasable_from: now.elapsed,
            was_due_at: (now.elapsed, Some(now.wall)),
            completed_at: Duration::ZERO,
            expires_at: Duration::ZERO,
        }
    }

    pub(super) fn event_type(&self) -> &Option<Box<str>> {
        &self.event.event_type
    }

    pub(super) fn order(&self) -> Option<&Order> {
        self.event.request.as_ref()?.order.as_ref()
    }

    /// Leases the event under a new token.
    pub(super) fn lease(&mut self, lease: Duration, now: Now) {
        if self.event.state == EventState::Running {
            self.failed(LAPSED, now);
        } else {
            self.was_due_at = (self.leasable_from, self.event.due_at);
        }
        self.event.state = EventState::Running;
        self.event.attempts = self.event.attempts.saturating_add(1);
        self.event.due_at = None;
        (self.token, self.started_at) = (ClaimToken::random(), now.wall);
        self.hold_for(lease, now);
    }

    /// Extends the lease. The event is due again when it ends.
    pub(super) fn hold_for(&mut self, lease: Duration, now: Now) {
        self.leasable_from = now.elapsed.saturating_add(lease);
    }

    fn failed(&mut self, reason: &str, now: Now) {
        let (started_at, ended_at) = (self.started_at, now.wall);
        self.event.failures.push(FailedAttempt { started_at, ended_at, reason: reason.into() });
    }

    pub(super) fn complete(&mut self, summary: &str, retention: Duration, now: Now) {
        self.end(EventState::Completed, summary, now);
        (self.completed_at, self.expires_at) = (now.elapsed, now.elapsed.saturating_add(retention));
    }

    /// Puts the event back where it was, as if it had never been leased.
    pub(super) fn release(&mut self) {
        self.event.state = EventState::Waiting;
        self.event.attempts -= 1;
        self.started = false;
        (self.leasable_from, self.event.due_at) = self.was_due_at;
    }

    pub(super) fn retry(&mut self, after: Duration, reason: &str, now: Now) {
        self.failed(reason, now);
        self.event.state = EventState::Waiting;
        self.event.due_at = now.wall.checked_add(after);
        self.leasable_from = now.elapsed.saturating_add(after);
    }

    pub(super) fn bury(&mut self, reason: &str, now: Now) {
        self.failed(reason, now);
        self.end(EventState::Dead, reason, now);
    }

    /// Lets the event arrive anew, as if it had never been tried.
    pub(super) fn requeue(&mut self, arrival: u64, now: Now) {
        (self.event.arrival, self.event.state, self.event.attempts) = (arrival, EventState::Waiting, 0);
        (self.started, self.applied) = (false, false);
        (self.event.summary, self.event.processed_at) = (None, None);
        // The token is new: the worker that gave the event up must not be taken for the one that puts it back.
        self.token = ClaimToken::random();
        (self.event.due_at, self.leasable_from) = (Some(now.wall), now.elapsed);
    }

    /// When a completed event loses its body, if bodies are kept for `bodies` only, or is forgotten.
    pub(super) fn next_end(&self, bodies: Duration) -> Duration {
        match self.event.request {
            Some(_) => self.expires_at.min(self.completed_at.saturating_add(bodies)),
            None => self.expires_at,
        }
    }

    /// The event as the caller of a verb finds it.
    pub(super) fn found_by(&self, claim: &ClaimRequest<'_>) -> Record {
        Record {
            state: self.event.state.into(),
            is_queued: true,
            is_own: self.token == claim.token,
            same_body: self.fingerprint == claim.fingerprint,
            has_lapsed: false,
        }
    }

    fn end(&mut self, state: EventState, summary: &str, now: Now) {
        self.event.state = state;
        self.event.summary = Some(summary.into());
        (self.event.processed_at, self.event.due_at) = (Some(now.wall), None);
    }
}
