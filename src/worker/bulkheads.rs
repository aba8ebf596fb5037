use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::EventKey;
use crate::lock::lock;
use crate::store::ClaimToken;
use crate::store::queue::{KindLimits, Leased};

/// Limits how many events run, in all and of each kind, so that one slow kind leaves room for the others.
pub(super) struct Bulkheads {
    pub(super) limits: Limits,
    running: Mutex<Running>,
    /// Notified whenever an event has ended.
    ended: Notify,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) in_all: usize,
    pub(super) per_endpoint: Option<usize>,
    pub(super) per_type: Option<usize>,
}

#[derive(Default)]
struct Running {
    in_all: usize,
    endpoints: HashMap<Box<str>, usize>,
    types: HashMap<Box<str>, usize>,
    attempts: HashMap<ClaimToken, RunningAttempt>,
}

struct RunningAttempt {
    key: EventKey,
    /// When the handler should long have been dropped, unless it blocks its thread.
    blocked_at: Instant,
    reported: bool,
}

/// How many more events of each kind may run.
pub(super) struct RoomByKind {
    pub(super) per_endpoint: Option<KindLimits>,
    pub(super) per_type: Option<KindLimits>,
}

/// The right to run one event, returned when it is dropped.
pub(super) struct Permit {
    bulkheads: Arc<Bulkheads>,
    endpoint: Box<str>,
    event_type: Option<Box<str>>,
}

/// Watches a handler while it runs.
pub(super) struct Watch<'a> {
    bulkheads: &'a Bulkheads,
    token: ClaimToken,
}

impl Bulkheads {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, running: Mutex::default(), ended: Notify::new() })
    }

    /// How many more events may run.
    pub(super) fn room(&self) -> usize {
        self.limits.in_all.saturating_sub(lock(&self.running).in_all)
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.running).in_all == 0
    }

    /// Ready when an event has ended since this was called.
    pub(super) fn ended(&self) -> impl Future<Output = ()> {
        self.ended.notified()
    }

    /// How many more events of each kind may run.
    pub(super) fn room_by_kind(&self) -> RoomByKind {
        let running = lock(&self.running);
        let left = |counts: &HashMap<Box<str>, usize>, limit: Option<usize>| {
            limit.map(|limit| {
                let left = counts.iter().map(|(kind, count)| (kind.clone(), limit.saturating_sub(*count)));
                let mut limits = KindLimits::new(limit);
                limits.left = left.collect();
                limits
            })
        };
        RoomByKind {
            per_endpoint: left(&running.endpoints, self.limits.per_endpoint),
            per_type: left(&running.types, self.limits.per_type),
        }
    }

    /// The attempts that still run although their handlers should have been dropped long ago. Returns each of them
    /// once.
    pub(super) fn newly_blocked(&self, now: Instant) -> Vec<EventKey> {
        let mut running = lock(&self.running);
        let attempts = running.attempts.values_mut();
        let blocked = attempts.filter(|attempt| attempt.blocked_at <= now && !attempt.reported);
        blocked
            .map(|attempt| {
                attempt.reported = true;
                attempt.key.clone()
            })
            .collect()
    }

    /// Watches the handler of this event, which counts as blocked from `blocked_at` on.
    pub(super) fn watch(&self, event: &Leased, blocked_at: Instant) -> Watch<'_> {
        let (key, token) = (event.key.clone(), event.token);
        lock(&self.running).attempts.insert(token, RunningAttempt { key, blocked_at, reported: false });
        Watch { bulkheads: self, token }
    }

    /// A permit for this event, if there is room for its kinds.
    pub(super) fn try_acquire(self: &Arc<Self>, event: &Leased) -> Option<Permit> {
        let (endpoint, event_type) = (event.key.endpoint(), event.event_type.as_deref());
        let mut running = lock(&self.running);
        let has_room = |counts: &HashMap<Box<str>, usize>, kind: &str, limit: Option<usize>| {
            limit.is_none_or(|limit| counts.get(kind).is_none_or(|count| *count < limit))
        };
        if !has_room(&running.endpoints, endpoint, self.limits.per_endpoint)
            || event_type.is_some_and(|kind| !has_room(&running.types, kind, self.limits.per_type))
        {
            return None;
        }
        running.in_all += 1;
        *running.endpoints.entry(endpoint.into()).or_default() += 1;
        if let Some(event_type) = event_type {
            *running.types.entry(event_type.into()).or_default() += 1;
        }
        Some(Permit { bulkheads: self.clone(), endpoint: endpoint.into(), event_type: event_type.map(Box::from) })
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        lock(&self.bulkheads.running).attempts.remove(&self.token);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut running = lock(&self.bulkheads.running);
        running.in_all -= 1;
        decrement(&mut running.endpoints, &self.endpoint);
        if let Some(event_type) = &self.event_type {
            decrement(&mut running.types, event_type);
        }
        drop(running);
        self.bulkheads.ended.notify_waiters();
    }
}

fn decrement(counts: &mut HashMap<Box<str>, usize>, kind: &str) {
    if let Some(count) = counts.get_mut(kind) {
        *count -= 1;
        if *count == 0 {
            counts.remove(kind);
        }
    }
}
