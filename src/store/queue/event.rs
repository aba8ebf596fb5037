use std::time::{Duration, SystemTime};

use super::StoredRequest;
use crate::EventKey;
use crate::clock::unix_millis;

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

/// Selects events. Every condition has to hold; a filter without conditions selects all events.
///
/// ```
/// use tower_webhook::queue::{EventState, Filter};
///
/// let failed_invoices = Filter::all().state(EventState::Dead).event_type("invoice.paid");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Filter {
    /// This event only.
    pub key: Option<EventKey>,
    /// In this state.
    pub state: Option<EventState>,
    /// Of this type.
    pub event_type: Option<Box<str>>,
    /// Of this endpoint.
    pub endpoint: Option<Box<str>>,
    /// Received at this time or later.
    pub since: Option<SystemTime>,
    /// Received before this time.
    pub before: Option<SystemTime>,
}

impl Filter {
    /// Every event.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// One event.
    #[must_use]
    pub fn one(key: EventKey) -> Self {
        Self { key: Some(key), ..Self::default() }
    }

    /// In this state.
    #[must_use]
    pub fn state(mut self, state: EventState) -> Self {
        self.state = Some(state);
        self
    }

    /// Of this type.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<Box<str>>) -> Self {
        self.event_type = Some(event_type.into());
        self
    }

    /// Of this endpoint.
    #[must_use]
    pub fn endpoint(mut self, endpoint: impl Into<Box<str>>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// Received at this time or later. To the millisecond.
    #[must_use]
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Received before this time. To the millisecond.
    #[must_use]
    pub fn before(mut self, time: SystemTime) -> Self {
        self.before = Some(time);
        self
    }

    /// Those of `states` that the filter selects.
    #[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
    pub(crate) fn states(&self, states: &[EventState]) -> Vec<EventState> {
        states.iter().copied().filter(|state| self.state.is_none_or(|wanted| wanted == *state)).collect()
    }

    /// Whether the filter selects this event.
    #[must_use]
    pub fn matches(&self, event: &QueuedEvent) -> bool {
        let received = unix_millis(event.received_at);
        self.key.as_ref().is_none_or(|key| *key == event.key)
            && self.state.is_none_or(|state| state == event.state)
            && self.event_type.as_deref().is_none_or(|wanted| event.event_type.as_deref() == Some(wanted))
            && self.endpoint.as_deref().is_none_or(|wanted| event.key.endpoint() == wanted)
            && self.since.is_none_or(|since| received >= unix_millis(since))
            && self.before.is_none_or(|before| received < unix_millis(before))
    }
}

/// One page of a listing.
///
/// ```
/// use tower_webhook::queue::{Filter, Page, Queue};
/// use tower_webhook::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queue = MemoryStore::new();
/// let mut page = Page::first(100);
/// loop {
///     let events = queue.list(&Filter::all(), &page).await?;
///     let Some(last) = events.last() else { break };
///     page = page.after(last);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// The arrival number after which the page begins. `None` begins with the first event.
    pub after: Option<u64>,
    /// The largest number of events.
    pub limit: usize,
}

impl Page {
    /// The first `limit` events.
    #[must_use]
    pub const fn first(limit: usize) -> Self {
        Self { after: None, limit }
    }

    /// The next page, after the last event of this one. Events that arrive or end meanwhile shift nothing.
    #[must_use]
    pub const fn after(self, last: &QueuedEvent) -> Self {
        Self { after: Some(last.arrival), ..self }
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

/// The summary of an event that an operator has discarded.
pub(crate) const DISCARDED: &str = "discarded by an operator";

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
