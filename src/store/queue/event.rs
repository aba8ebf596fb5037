//! An event in a queue: its request as it is stored, and what operators see of it.

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

use crate::EventKey;

/// A delivery as stored in a queue: everything a worker needs to rebuild the request.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredRequest {
    /// The request's head and what was verified of it, in a form that only this crate reads.
    pub head: Bytes,
    /// The body, exactly as it was signed.
    pub body: Bytes,
    /// When the delivery was received, on the receiver's wall clock.
    pub received_at: SystemTime,
    /// The ordering group this event belongs to, if any.
    pub order: Option<Order>,
}

/// The ordering group of an event, and its number in it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Order {
    /// The key of the ordering group. Its events run one at a time, in the order of their arrival. A group belongs to
    /// one endpoint and tenant: under two endpoints, the same text names two groups.
    pub key: Box<str>,
    /// The sender's number of the event, if outdated events are to be skipped: an event whose number is not above that
    /// of the last one that was completed under the same key is [superseded](super::Leased::superseded).
    pub sequence: Option<i64>,
}

impl StoredRequest {
    /// A request that belongs to no ordering group.
    #[must_use]
    pub fn new(head: impl Into<Bytes>, body: impl Into<Bytes>, received_at: SystemTime) -> Self {
        Self { head: head.into(), body: body.into(), received_at, order: None }
    }

    /// The same request, in an ordering group.
    #[must_use]
    pub fn ordered(mut self, order: Order) -> Self {
        self.order = Some(order);
        self
    }
}

impl Order {
    /// The ordering group with this key.
    pub fn of(key: impl Into<Box<str>>) -> Self {
        Self { key: key.into(), sequence: None }
    }

    /// The same group, with the number of the event.
    #[must_use]
    pub fn sequence(mut self, sequence: i64) -> Self {
        self.sequence = Some(sequence);
        self
    }
}

/// Shows lengths only: heads may carry credentials, and bodies belong in no log.
impl fmt::Debug for StoredRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredRequest")
            .field("head_length", &self.head.len())
            .field("body_length", &self.body.len())
            .field("received_at", &self.received_at)
            .field("order", &self.order)
            .finish()
    }
}

/// The state of a queued event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum EventState {
    /// The event is to be run, now or later.
    Waiting,
    /// A worker has leased the event.
    Running,
    /// The event was run or discarded, and is remembered until its retention is over.
    Completed,
    /// The event was given up, for good or after too many attempts. It is kept until an operator requeues, discards or
    /// forgets it.
    Dead,
}

impl EventState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Waiting, Self::Running, Self::Completed, Self::Dead];

    /// The stable, lower-case name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Dead => "dead",
        }
    }
}

/// An event as a queue shows it to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueuedEvent {
    /// The key under which the queue keeps the event.
    pub key: EventKey,
    /// Its state.
    pub state: EventState,
    /// Its number in the order of arrival. A requeued event has a new one.
    pub arrival: u64,
    /// The event's type.
    pub event_type: Option<Box<str>>,
    /// When it was received.
    pub received_at: SystemTime,
    /// The time before which a waiting event is not run.
    pub due_at: Option<SystemTime>,
    /// When the event was completed or given up.
    pub processed_at: Option<SystemTime>,
    /// How often the event has been tried since it last arrived.
    pub attempts: u32,
    /// How the event ended: the response's status, or why it was given up.
    pub summary: Option<Box<str>>,
    /// The attempts that failed, oldest first; of a listed event, none.
    pub failures: Vec<FailedAttempt>,
    /// The accepted request. Listed events come without it. So do completed events whose body is gone, if the store
    /// keeps bodies for a shorter time than records (`keep_completed_bodies` of its builder).
    pub request: Option<StoredRequest>,
}

impl QueuedEvent {
    /// An event that has only just arrived.
    #[must_use]
    pub fn new(key: EventKey, arrival: u64, received_at: SystemTime) -> Self {
        Self {
            key,
            state: EventState::Waiting,
            arrival,
            event_type: None,
            received_at,
            due_at: None,
            processed_at: None,
            attempts: 0,
            summary: None,
            failures: Vec::new(),
            request: None,
        }
    }
}

/// An attempt that did not complete the event.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// When it was leased.
    pub started_at: SystemTime,
    /// When it failed, or when the queue found that its lease had lapsed.
    pub ended_at: SystemTime,
    /// Why.
    pub reason: Box<str>,
}

/// The reason that is noted for an attempt whose worker did not come back.
pub const LAPSED: &str = "the lease lapsed: the worker is gone, or could not reach the store";

/// The summary of an event that this version cannot read.
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) const UNREADABLE: &str = "the stored event is not one that this version wrote";

/// A log of failed attempts as stores keep it: a line each, `started ended reason`, the times in milliseconds since
/// 1970.
#[cfg(any(test, feature = "postgres", feature = "redis", feature = "sqlite"))]
pub(crate) mod log {
    use super::FailedAttempt;
    use crate::clock::from_unix_millis;

    /// The reason on one line, and without what some databases refuse.
    pub(crate) fn escaped(reason: &str) -> String {
        reason.replace(['\n', '\r'], " ").replace('\0', "\u{fffd}")
    }

    /// The attempts of a log. A line that cannot be read is left out.
    pub(crate) fn read(log: &str) -> Vec<FailedAttempt> {
        log.lines().filter_map(attempt).collect()
    }

    fn attempt(line: &str) -> Option<FailedAttempt> {
        let mut parts = line.splitn(3, ' ');
        let started_at = from_unix_millis(parts.next()?.parse().ok()?);
        let ended_at = from_unix_millis(parts.next()?.parse().ok()?);
        Some(FailedAttempt { started_at, ended_at, reason: parts.next()?.into() })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn attempts_come_back_as_noted_down() {
            let line = |started: i64, ended: i64, reason| format!("{started} {ended} {}\n", escaped(reason));
            let log = [line(1, 2, "no such account"), line(3, 4, ""), line(5, 6, "two\nlines and a \0")].concat();
            let came: Vec<_> = read(&log).into_iter().map(|attempt| attempt.reason).collect();
            assert_eq!(came, ["no such account".into(), Box::from(""), "two lines and a \u{fffd}".into()]);
            assert_eq!(read(&log)[0].ended_at, from_unix_millis(2));
            assert!(read("nonsense\n1 x y\n").is_empty());
        }
    }
}

/// The number of events in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueCounts {
    /// Events that are to be run, now or later.
    pub waiting: u64,
    /// Events that a worker has leased, those whose lease has lapsed included.
    pub running: u64,
    /// Completed events that are still remembered.
    pub completed: u64,
    /// Dead letters.
    pub dead: u64,
    /// The age of the oldest event that is due, since it was received.
    pub oldest_waiting: Option<Duration>,
}
