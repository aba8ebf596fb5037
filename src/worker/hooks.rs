use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::EventKey;

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

pub(super) type Hook = dyn Fn(&DeadLetter<'_>) + Send + Sync;

/// The functions to call for dead letters.
#[derive(Clone, Default)]
pub(super) struct Hooks {
    pub(super) on_dead_letter: Option<Arc<Hook>>,
    pub(super) on_permanent: Option<Arc<Hook>>,
}

impl Hooks {
    pub(super) fn buried(&self, letter: &DeadLetter<'_>) {
        if letter.permanent {
            call(self.on_permanent.as_deref(), letter);
        }
        call(self.on_dead_letter.as_deref(), letter);
    }
}

/// Calls the hook. A hook that panics does not keep the other from being called.
fn call(hook: Option<&Hook>, letter: &DeadLetter<'_>) {
    if let Some(hook) = hook {
        let _ = catch_unwind(AssertUnwindSafe(|| hook(letter)));
    }
}
