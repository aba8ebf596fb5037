use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::EventKey;
use crate::outcome::AttemptOutcome;

/// An attempt that has ended, as told to the hook of a worker ([`Worker::on_attempt`](crate::Worker::on_attempt)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptReport<'a> {
    /// The key of the event: [`Queue::get`](crate::queue::Queue::get) returns the rest.
    pub key: &'a EventKey,
    /// The event's type.
    pub event_type: Option<&'a str>,
    /// When the receiver got the delivery.
    pub received_at: SystemTime,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// How the attempt ended, as far as the queue has confirmed it.
    pub outcome: AttemptOutcome,
    /// How long the handler ran: zero if it was not called.
    pub took: Duration,
    /// Why the attempt failed, in the handler's own words or in the crate's. The crate cannot tell whether the
    /// handler's hold anything secret.
    pub reason: Option<&'a str>,
}

/// An event that became a dead letter, as told to the hooks of a worker.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeadLetter<'a> {
    /// The key of the event: [`Queue::get`](crate::queue::Queue::get) returns the rest.
    pub key: &'a EventKey,
    /// The event's type.
    pub event_type: Option<&'a str>,
    /// The attempt in which it was given up.
    pub attempt: u32,
    /// Why, in the handler's own words: the crate cannot tell whether they hold anything secret.
    pub reason: &'a str,
    /// Whether the handler said that no retry would help. Otherwise there were too many attempts.
    pub permanent: bool,
}

type AttemptHook = dyn Fn(&AttemptReport<'_>) + Send + Sync;
type DeadLetterHook = dyn Fn(&DeadLetter<'_>) + Send + Sync;

/// The functions to call when an attempt has ended.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) on_attempt: Option<Arc<AttemptHook>>,
    pub(super) on_dead_letter: Option<Arc<DeadLetterHook>>,
    pub(super) on_permanent: Option<Arc<DeadLetterHook>>,
}

impl Hooks {
    pub(super) fn attempted(&self, report: &AttemptReport<'_>) {
        call(self.on_attempt.as_deref(), report);
    }

    pub(super) fn buried(&self, letter: &DeadLetter<'_>) {
        if letter.permanent {
            call(self.on_permanent.as_deref(), letter);
        }
        call(self.on_dead_letter.as_deref(), letter);
    }
}

/// Calls the hook. A hook that panics does not keep the others from being called.
fn call<T>(hook: Option<&(dyn Fn(&T) + Send + Sync)>, told: &T) {
    if let Some(hook) = hook {
        let _ = catch_unwind(AssertUnwindSafe(|| hook(told)));
    }
}
