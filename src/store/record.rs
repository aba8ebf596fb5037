//! The rules of [`Store`](super::Store) and [`Queue`](super::queue::Queue) for one event, without clocks and without
//! storage.
//!
//! A store describes what it has under a key as a [`Record`], asks a function of this module, and makes the change
//! itself. Redis and Postgres decide on the server instead, and the table of the memory store decides as it looks a key
//! up.

use super::queue::EventState;
use super::{Claim, Ending, Hold};

const FRESH: Claim = Claim::Fresh { attempt: None };

/// The state of an event, inline or in a queue.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "the other stores forget a released event"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In a queue, and not leased.
    Waiting,
    /// Claimed, or leased from a queue.
    Running,
    Completed,
    /// Given up for good; in a queue, a dead letter.
    Failed,
    /// Free to claim. A queued event that is released is waiting instead.
    Released,
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl State {
    #[cfg(feature = "sqlite")]
    pub(crate) const ALL: [Self; 5] = [Self::Waiting, Self::Running, Self::Completed, Self::Failed, Self::Released];

    /// The name in the tables of Postgres and SQLite.
    pub(crate) const fn stored(self) -> &'static str {
        match self {
            Self::Waiting => "accepted",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
        }
    }
}

/// The state that operators see of a queued event, by its name in the tables of Postgres and SQLite.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn event_state(stored: &str) -> Option<EventState> {
    EventState::ALL.into_iter().find(|state| State::from(*state).stored() == stored)
}

impl From<EventState> for State {
    fn from(state: EventState) -> Self {
        match state {
            EventState::Waiting => Self::Waiting,
            EventState::Running => Self::Running,
            EventState::Completed => Self::Completed,
            EventState::Dead => Self::Failed,
        }
    }
}

/// A record as one caller finds it. A record whose retention is over counts as missing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) state: State,
    /// Whether the event is in a queue, and not run inline.
    pub(crate) is_queued: bool,
    /// Whether the record has the caller's token.
    pub(crate) is_own: bool,
    pub(crate) same_body: bool,
    pub(crate) has_lapsed: bool,
}

/// A verb of a store or of a queue.
#[cfg_attr(not(feature = "sqlite"), allow(dead_code, reason = "the other stores call a function for each claim"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Claim,
    Enqueue,
    Renew,
    Start,
    Complete,
    /// Completes the event as failed. A queued event is buried.
    Fail,
    Release,
    Retry,
    Bury,
}

impl From<&Ending<'_>> for Verb {
    fn from(ending: &Ending<'_>) -> Self {
        match ending {
            Ending::Complete(completion) if completion.failed => Self::Fail,
            Ending::Complete(_) => Self::Complete,
            Ending::Release => Self::Release,
            Ending::Retry { .. } => Self::Retry,
            Ending::Bury { .. } => Self::Bury,
        }
    }
}

/// Answers a claim. If it is fresh, the caller takes the event.
pub(crate) fn claim(record: Option<Record>) -> Claim {
    let Some(Record { state, is_queued, is_own, same_body, has_lapsed }) = record else { return FRESH };
    match state {
        State::Completed | State::Failed => Claim::Completed { same_body },
        // The event is going to be run, whatever becomes of its worker's lease.
        _ if is_queued => Claim::Accepted { same_body },
        State::Running if !is_own && !has_lapsed => Claim::InFlight { same_body },
        State::Waiting | State::Running | State::Released => FRESH,
    }
}

/// Answers an enqueue, and says whether it stores the event: a repeated one is fresh again, and changes nothing.
pub(crate) fn enqueue(record: Option<Record>) -> (Claim, bool) {
    let is_stored = |record: &Record| record.is_queued && record.is_own && record.state == State::Waiting;
    match claim(record) {
        _ if record.as_ref().is_some_and(is_stored) => (FRESH, false),
        answer => (answer, answer == FRESH),
    }
}

/// Answers a verb that needs the claim, and says whether the record changes.
///
/// A token holds a claim until another takes it, however long ago its lease has lapsed. Where there is no record, the
/// claim may have been forgotten when it lapsed: a renewal and a completion write it anew, and a release has nothing
/// left to do.
pub(crate) fn settle(record: Option<Record>, verb: Verb) -> (Hold, bool) {
    use State::{Completed, Failed, Released, Running, Waiting};

    let is_queued = record.is_some_and(|record| record.is_queued);
    if !is_queued && matches!(verb, Verb::Start | Verb::Retry | Verb::Bury) {
        return (Hold::Lost, false);
    }
    let Some(Record { state, is_own, .. }) = record else { return (Hold::Held, verb != Verb::Release) };
    // The reply to the first call may have been lost.
    let is_repeated = match (verb, is_queued) {
        (Verb::Complete | Verb::Fail, false) => matches!(state, Completed | Failed),
        (Verb::Complete, true) => state == Completed,
        (Verb::Fail | Verb::Bury, _) => state == Failed,
        (Verb::Release, false) => state == Released,
        (Verb::Release | Verb::Retry, _) => state == Waiting,
        (Verb::Claim | Verb::Enqueue | Verb::Renew | Verb::Start, _) => false,
    };
    match state {
        Running if is_own => (Hold::Held, true),
        _ if is_own && is_repeated => (Hold::Held, false),
        _ => (Hold::Lost, false),
    }
}
