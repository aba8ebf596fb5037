use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::EventKey;

/// An event that was given up, for whoever is to be alerted.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DeadLetter<'a> {
    /// What the inbox has it under: [`Queue::get`](crate::queue::Queue::get) knows the rest.
    pub key: &'a EventKey,
    /// The event's type.
    pub event_type: Option<&'a str>,
    /// In which attempt it was given up.
    pub attempt: u32,
    /// Why. It is the handler's own words: what is in them is the handler's business.
    pub reason: &'a str,
    /// Whether the handler said that no retry would help; otherwise there were too many attempts.
    pub permanent: bool,
}

pub(super) type Hook = dyn Fn(&DeadLetter<'_>) + Send + Sync;

/// Who is told of events that were given up.
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

/// One that panics keeps nobody else from being told.
fn call(hook: Option<&Hook>, letter: &DeadLetter<'_>) {
    if let Some(hook) = hook {
        let _ = catch_unwind(AssertUnwindSafe(|| hook(letter)));
    }
}
