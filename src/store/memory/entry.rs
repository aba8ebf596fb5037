//! One event of an inbox.

use std::time::{Duration, SystemTime};

use crate::EventKey;
use crate::store::queue::{EventState, FailedAttempt, Order, QueuedEvent, StoredRequest};
use crate::store::{ClaimRequest, ClaimToken, Fingerprint};

/// Both readings of the store's clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Since the store was built.
    pub(super) elapsed: Duration,
    pub(super) wall: SystemTime,
}

/// An event of the inbox.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) event: QueuedEvent,
    pub(super) token: ClaimToken,
    pub(super) fingerprint: Fingerprint,
    pub(super) started_at: SystemTime,
    /// Whether a handler was started in the last attempt that its worker permits.
    pub(super) started: bool,
    /// Whether it was run, and not only discarded.
    pub(super) applied: bool,
    /// While it runs: since when it was due before, by both clocks.
    pub(super) due: (Duration, Option<SystemTime>),
    /// While it waits: when it is due. While it runs: when its lease ends. Completed: when it is forgotten.
    pub(super) until: Duration,
    /// Completed: since when.
    pub(super) ended: Duration,
}

/// The record of a completed event, which outlives the event itself.
#[derive(Debug)]
pub(super) struct Retired {
    pub(super) key: EventKey,
    pub(super) fingerprint: Fingerprint,
    pub(super) token: ClaimToken,
    pub(super) completed: Duration,
    pub(super) expires: Duration,
}

impl Entry {
    /// An event that arrives now, and is due at once.
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
            due: (now.elapsed, Some(now.wall)),
            until: now.elapsed,
            ended: Duration::ZERO,
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
            self.failed(crate::store::queue::LAPSED, now);
        } else {
            self.due = (self.until, self.event.due_at);
        }
        self.event.state = EventState::Running;
        self.event.attempts = self.event.attempts.saturating_add(1);
        self.event.due_at = None;
        (self.token, self.started_at) = (ClaimToken::random(), now.wall);
        self.until = now.elapsed.saturating_add(lease);
    }

    pub(super) fn failed(&mut self, reason: &str, now: Now) {
        let (started_at, ended_at) = (self.started_at, now.wall);
        self.event.failures.push(FailedAttempt { started_at, ended_at, reason: reason.into() });
    }

    pub(super) fn complete(&mut self, summary: &str, retention: Duration, now: Now) {
        self.end(EventState::Completed, summary, now);
        (self.ended, self.until) = (now.elapsed, now.elapsed.saturating_add(retention));
    }

    pub(super) fn bury(&mut self, reason: &str, now: Now) {
        self.failed(reason, now);
        self.end(EventState::Dead, reason, now);
    }

    /// Arrives anew, as if it had never been tried.
    pub(super) fn requeue(&mut self, arrival: u64, now: Now) {
        (self.event.arrival, self.event.state, self.event.attempts) = (arrival, EventState::Waiting, 0);
        (self.started, self.applied) = (false, false);
        (self.event.summary, self.event.processed_at) = (None, None);
        // A token of its own: the worker that gave the event up must not be taken for the one that puts it back.
        self.token = ClaimToken::random();
        (self.event.due_at, self.until) = (Some(now.wall), now.elapsed);
    }

    /// When something of a completed event goes: its body, if that is kept for `bodies` only, or all of it.
    pub(super) fn next_end(&self, bodies: Duration) -> Duration {
        match self.event.request {
            Some(_) => self.until.min(self.ended.saturating_add(bodies)),
            None => self.until,
        }
    }

    pub(super) fn retired(&self) -> Retired {
        Retired {
            key: self.event.key.clone(),
            fingerprint: self.fingerprint,
            token: self.token,
            completed: self.ended,
            expires: self.until,
        }
    }

    fn end(&mut self, state: EventState, summary: &str, now: Now) {
        self.event.state = state;
        self.event.summary = Some(summary.into());
        (self.event.processed_at, self.event.due_at) = (Some(now.wall), None);
    }
}
