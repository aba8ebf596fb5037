//! What each verb makes of a row of the inbox.

use std::sync::Arc;

use super::question::{Answer, Bid, Done};
use super::record::{Decision, HELD_ALREADY, LOST, Record, State, held};
use super::time::Now;
use crate::clock::unix_millis;
use crate::store::queue::{StoredRequest, log};
use crate::store::{Claim, ClaimToken};

/// When what is waiting, running or dead expires.
pub(super) const NEVER: i64 = i64::MAX;

/// The due time of an event that became due in another boot: before everything that became due in this one.
pub(super) const BEFORE_THE_BOOT: i64 = -1;

/// What a row of the inbox has beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Queued {
    pub(super) arrival: Arrival,
    /// On the boot clock: when it is due, while it waits, and since when it had been due, while it is leased. None of another boot's.
    pub(super) due_at: Option<i64>,
    /// Whether its handler was started in the last attempt that the worker permits.
    pub(super) started: bool,
    /// What is added to the log, behind the time at which the attempt began: when it ended, and why.
    pub(super) failure: Option<Arc<str>>,
    /// What is kept, of an event that has only just arrived.
    pub(super) parcel: Option<Arc<StoredRequest>>,
}

/// An event's number in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Known(i64),
    /// So many after the first of its batch, which has its number from whoever holds the write lock.
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

impl Queued {
    /// A row as it was read.
    pub(super) const fn known(arrival: i64, due_at: Option<i64>, started: bool) -> Self {
        Self { arrival: Arrival::Known(arrival), due_at, started, failure: None, parcel: None }
    }
}

/// An event that is in the inbox from now on.
pub(super) fn arrived(token: ClaimToken, bid: &Bid, parcel: &Arc<StoredRequest>, now: &Now) -> Record {
    let queued = Queued {
        arrival: Arrival::After(0),
        due_at: Some(now.lease),
        started: false,
        failure: None,
        parcel: Some(parcel.clone()),
    };
    Record {
        state: State::Accepted,
        lease_until: None,
        received_at: unix_millis(parcel.received_at),
        attempts: 0,
        expires_at: NEVER,
        queued: Some(queued),
        ..Record::running(token, bid, now)
    }
}

pub(super) fn accept(record: &Record, token: ClaimToken, bid: &Bid) -> Decision {
    if record.is_waiting_by(token) {
        return (Answer::Claim(Claim::Fresh { attempt: None }), None);
    }
    claim(record, bid)
}

/// It is going to be run, whatever has become of the worker's lease.
pub(super) fn claim(record: &Record, bid: &Bid) -> Decision {
    let same_body = record.fingerprint == bid.fingerprint;
    let claim = match record.state {
        State::Completed | State::Failed => Claim::Completed { same_body },
        State::Accepted | State::Running | State::Released => Claim::Accepted { same_body },
    };
    (Answer::Claim(claim), None)
}

pub(super) fn renew(record: &Record, token: ClaimToken, bid: &Bid, now: &Now) -> Decision {
    match record.is_held_by(token) {
        true => held(Record { lease_until: Some(now.lease + bid.lease), ..record.clone() }),
        false => LOST,
    }
}

/// Renews the lease, and notes down that the handler is about to be called.
pub(super) fn start(record: &Record, token: ClaimToken, bid: &Bid, now: &Now) -> Decision {
    let (answer, renewed) = renew(record, token, bid, now);
    let started = renewed.map(|mut record| {
        record.queued.iter_mut().for_each(|queued| queued.started = true);
        record
    });
    (answer, started)
}

pub(super) fn complete(record: &Record, token: ClaimToken, done: &Done, now: &Now) -> Decision {
    if done.failed {
        return bury(record, token, &done.summary, now);
    }
    if record.state == State::Completed && record.token == token {
        return HELD_ALREADY;
    }
    settle(record, token, |record| Record {
        state: State::Completed,
        processed_at: Some(now.wall),
        summary: Some(done.summary.clone()),
        expires_at: now.wall + done.retention,
        ..record.never_due()
    })
}

/// Back to where it was, as if it had never been leased: due since when it was due before.
pub(super) fn release(record: &Record, token: ClaimToken) -> Decision {
    if record.is_waiting_by(token) {
        return HELD_ALREADY;
    }
    settle(record, token, |mut record| {
        record.queued.iter_mut().for_each(|queued| queued.started = false);
        let attempts = record.attempts.saturating_sub(1);
        let due_at = record.queued.as_ref().and_then(|queued| queued.due_at).unwrap_or(BEFORE_THE_BOOT);
        Record { attempts, ..record }.waiting(due_at)
    })
}

pub(super) fn retry(record: &Record, token: ClaimToken, after: i64, reason: &str, now: &Now) -> Decision {
    if record.is_waiting_by(token) {
        return HELD_ALREADY;
    }
    settle(record, token, |record| record.waiting(now.lease + after).failed(reason, now))
}

pub(super) fn bury(record: &Record, token: ClaimToken, reason: &Arc<str>, now: &Now) -> Decision {
    if record.state == State::Failed && record.token == token {
        return HELD_ALREADY;
    }
    settle(record, token, |record| {
        let buried = Record {
            state: State::Failed,
            processed_at: Some(now.wall),
            summary: Some(reason.clone()),
            expires_at: NEVER,
            ..record.never_due()
        };
        buried.failed(reason, now)
    })
}

/// Ends a lease that `token` holds.
fn settle(record: &Record, token: ClaimToken, change: impl FnOnce(Record) -> Record) -> Decision {
    match record.is_held_by(token) {
        true => held(change(Record { lease_until: None, ..record.clone() })),
        false => LOST,
    }
}

impl Record {
    fn is_waiting_by(&self, token: ClaimToken) -> bool {
        self.state == State::Accepted && self.token == token
    }

    fn waiting(mut self, due_at: i64) -> Self {
        self.state = State::Accepted;
        if let Some(queued) = &mut self.queued {
            queued.due_at = Some(due_at);
        }
        self
    }

    fn never_due(mut self) -> Self {
        self.queued.iter_mut().for_each(|queued| queued.due_at = None);
        self
    }

    fn failed(mut self, reason: &str, now: &Now) -> Self {
        if let Some(queued) = &mut self.queued {
            queued.failure = Some(format!("{} {}\n", now.wall, log::escaped(reason)).into());
        }
        self
    }
}
