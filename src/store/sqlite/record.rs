//! Rows of the table: how one is read, and how a verb changes it.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::operation::{Operation, Reply};
use super::time::Now;
use crate::clock::unix_millis;
use crate::store::queue::{StoredRequest, log};
use crate::store::record::{self, State, Verb};
use crate::store::{Claim, ClaimToken, Fingerprint};

/// How long a claim that was released, or that lapsed and was not taken over, leaves a trace, so that its attempts go
/// on being counted. In milliseconds.
const TRACE_KEPT: i64 = 24 * 3600 * 1000;

/// When a waiting, running or dead event expires.
const NEVER: i64 = i64::MAX;

/// The due time of an event that became due in another boot: before everything that became due in this one.
const BEFORE_THE_BOOT: i64 = -1;

/// A row, but for its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) token: ClaimToken,
    /// On the boot clock. `None` if it was another boot's, and once the claim is settled.
    pub(super) lease_until: Option<i64>,
    pub(super) received_at: i64,
    pub(super) processed_at: Option<i64>,
    pub(super) attempts: u32,
    pub(super) summary: Option<Arc<str>>,
    pub(super) fingerprint: Fingerprint,
    pub(super) event_type: Option<Arc<str>>,
    pub(super) expires_at: i64,
    /// One more with every write, so that a writer overwrites only what it has read.
    pub(super) version: i64,
    /// `None` for an event that is run inline.
    pub(super) queued: Option<Queued>,
}

/// The columns of a queued event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) arrival: Arrival,
    /// From when on a worker may lease the event, on the boot clock: a running event when its lease ends. `None` once
    /// the event has ended, and if that was in another boot.
    pub(super) due_at: Option<i64>,
    /// While the event runs: its `due_at` from before the lease. `None` if that was in another boot.
    pub(super) was_due_at: Option<i64>,
    /// Whether the handler was started in the last attempt that the worker permits.
    pub(super) started: bool,
    /// The text to append to the log after the time at which the attempt began: when it ended, and why.
    pub(super) failure: Option<Arc<str>>,
    /// The request of an event that has only just arrived.
    pub(super) request: Option<Arc<StoredRequest>>,
}

/// An event's number in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Known(i64),
    /// So many after the first of its batch, whose number is found out under the write lock.
    After(i64),
}

impl Arrival {
    pub(super) const fn number(self, first: i64) -> i64 {
        match self {
            Self::Known(number) => number,
            Self::After(others) => first + others,
        }
    }
}

impl Record {
    /// Reads a row. Fails if another program wrote it.
    pub(super) fn read(row: &SqliteRow, now: &Now) -> Result<Self, sqlx::Error> {
        let same_boot = row.try_get::<&str, _>("boot")? == &*now.boot_id;
        let state: &str = row.try_get("state")?;
        let boot_time = |column| row.try_get::<Option<i64>, _>(column).map(|time| time.filter(|_| same_boot));
        let queued = match row.try_get::<Option<i64>, _>("arrival")? {
            None => None,
            Some(arrival) => Some(Queued {
                arrival: Arrival::Known(arrival),
                due_at: boot_time("due_at")?,
                was_due_at: boot_time("was_due_at")?,
                started: row.try_get::<Option<bool>, _>("handler_started")?.unwrap_or_default(),
                failure: None,
                request: None,
            }),
        };
        Ok(Self {
            state: State::ALL.into_iter().find(|known| known.stored() == state).ok_or_else(|| unknown("state"))?,
            token: token(row)?,
            lease_until: boot_time("lease_until")?,
            received_at: row.try_get("received_at")?,
            processed_at: None,
            attempts: row.try_get::<i64, _>("attempts")?.try_into().map_err(|_| unknown("number of attempts"))?,
            summary: None,
            fingerprint: fingerprint(row)?,
            event_type: row.try_get::<Option<&str>, _>("event_type")?.map(Into::into),
            expires_at: row.try_get("expires_at")?,
            version: row.try_get("version")?,
            queued,
        })
    }

    /// A first claim.
    fn claimed(operation: &Operation, now: &Now) -> Self {
        Self {
            state: State::Running,
            token: operation.token,
            lease_until: Some(now.since_boot + operation.lease),
            received_at: now.wall,
            processed_at: None,
            attempts: 1,
            summary: None,
            fingerprint: operation.fingerprint,
            event_type: operation.event_type.clone(),
            expires_at: now.wall + operation.lease + TRACE_KEPT,
            version: 0,
            queued: None,
        }
    }

    /// An event that arrives in the queue.
    fn enqueued(operation: &Operation, now: &Now) -> Self {
        let request = operation.request.clone();
        Self {
            state: State::Waiting,
            lease_until: None,
            received_at: request.as_ref().map_or(now.wall, |request| unix_millis(request.received_at)),
            attempts: 0,
            expires_at: NEVER,
            queued: Some(Queued {
                arrival: Arrival::After(0),
                due_at: Some(now.since_boot),
                was_due_at: None,
                started: false,
                failure: None,
                request,
            }),
            ..Self::claimed(operation, now)
        }
    }

    fn as_found_by(&self, operation: &Operation, now: &Now) -> record::Record {
        record::Record {
            state: self.state,
            is_queued: self.queued.is_some(),
            is_own: self.token == operation.token,
            same_body: self.fingerprint == operation.fingerprint,
            has_lapsed: self.lease_until.is_none_or(|until| until <= now.since_boot),
        }
    }

    /// Whether the record is as if it had never been. Not so a running claim, which only another claim ends.
    fn is_over(&self, now: &Now) -> bool {
        self.state != State::Running && self.expires_at <= now.wall
    }

    /// The same without a lease, and due from `due_at` on.
    fn unleased(mut self, due_at: Option<i64>) -> Self {
        self.lease_until = None;
        self.queued.iter_mut().for_each(|queued| (queued.due_at, queued.was_due_at) = (due_at, None));
        self
    }

    /// The same with this lease. A queued event is due again when the lease ends.
    fn leased(mut self, lease_until: Option<i64>) -> Self {
        self.lease_until = lease_until;
        self.queued.iter_mut().for_each(|queued| queued.due_at = lease_until);
        self
    }

    fn started(mut self, started: bool) -> Self {
        self.queued.iter_mut().for_each(|queued| queued.started = started);
        self
    }

    fn failed(mut self, reason: &str, now: &Now) -> Self {
        let failure = format!("{} {}\n", now.wall, log::escaped(reason));
        self.queued.iter_mut().for_each(|queued| queued.failure = Some(failure.as_str().into()));
        self
    }
}

/// Decides one operation on a key under which `stored` was found: the reply, and the record as it is from now on, if it
/// changes.
pub(super) fn decide(stored: Option<&Record>, operation: &Operation, now: &Now) -> (Reply, Option<Record>) {
    let stored = stored.filter(|record| !record.is_over(now));
    let found = stored.map(|record| record.as_found_by(operation, now));
    match operation.verb {
        Verb::Claim => match record::claim(found) {
            Claim::Fresh { .. } => {
                let record = changed(stored, operation, now);
                (Reply::Claim(Claim::Fresh { attempt: Some(record.attempts) }), Some(record))
            }
            taken => (Reply::Claim(taken), None),
        },
        Verb::Enqueue => {
            let (claim, changes) = record::enqueue(found);
            (Reply::Claim(claim), changes.then(|| changed(stored, operation, now)))
        }
        verb => {
            let (hold, changes) = record::settle(found, verb);
            (Reply::Hold(hold), changes.then(|| changed(stored, operation, now)))
        }
    }
}

/// The record after an operation that changes it.
fn changed(stored: Option<&Record>, operation: &Operation, now: &Now) -> Record {
    let claimed = Record::claimed(operation, now);
    let record = stored.cloned().unwrap_or_else(|| claimed.clone());
    let text = operation.text.clone();
    match (operation.verb, &record.queued) {
        (Verb::Claim, _) => {
            // A repeated claim is the same attempt.
            let goes_on = stored.is_none() || record.state == State::Running && record.token == operation.token;
            let attempts = if goes_on { record.attempts } else { record.attempts.saturating_add(1) };
            Record { attempts, received_at: record.received_at, ..claimed }
        }
        (Verb::Enqueue, _) => Record::enqueued(operation, now),
        (Verb::Renew | Verb::Start, None) => {
            Record { expires_at: claimed.expires_at, ..record }.leased(claimed.lease_until)
        }
        (Verb::Renew, Some(_)) => record.leased(claimed.lease_until),
        (Verb::Start, Some(_)) => record.leased(claimed.lease_until).started(true),
        (Verb::Fail | Verb::Bury, Some(_)) => {
            let (state, processed_at) = (State::Failed, Some(now.wall));
            let buried = Record { state, processed_at, summary: Some(text.clone()), expires_at: NEVER, ..record };
            buried.unleased(None).failed(&text, now)
        }
        (Verb::Complete | Verb::Fail | Verb::Bury, _) => {
            let state = if operation.verb == Verb::Complete { State::Completed } else { State::Failed };
            let (processed_at, expires_at) = (Some(now.wall), now.wall + operation.time);
            Record { state, processed_at, summary: Some(text), expires_at, ..record }.unleased(None)
        }
        (Verb::Release | Verb::Retry, None) => {
            Record { state: State::Released, expires_at: now.wall + TRACE_KEPT, ..record }.unleased(None)
        }
        // Back to where it was, as if it had never been leased: due since when it was due before.
        (Verb::Release, Some(queued)) => {
            let due_at = queued.was_due_at.unwrap_or(BEFORE_THE_BOOT);
            let (state, attempts) = (State::Waiting, record.attempts.saturating_sub(1));
            Record { state, attempts, ..record }.unleased(Some(due_at)).started(false)
        }
        (Verb::Retry, Some(_)) => {
            let due_at = now.since_boot + operation.time;
            Record { state: State::Waiting, ..record }.unleased(Some(due_at)).failed(&text, now)
        }
    }
}

pub(super) fn token(row: &SqliteRow) -> Result<ClaimToken, sqlx::Error> {
    let bytes = row.try_get::<&[u8], _>("token")?.try_into().map_err(|_| unknown("token"))?;
    Ok(ClaimToken::from_bytes(bytes))
}

pub(super) fn fingerprint(row: &SqliteRow) -> Result<Fingerprint, sqlx::Error> {
    Ok(Fingerprint::from_u64(row.try_get::<i64, _>("fingerprint")?.cast_unsigned()))
}

/// The error for a column that another program wrote.
pub(super) fn unknown(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("a row has an unknown {what}").into())
}
