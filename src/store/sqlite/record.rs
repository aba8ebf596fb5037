//! What each verb makes of one row. No SQL here: the rows of a batch are read, changed by these functions, and written back.

use std::sync::Arc;

use super::question::{Answer, Bid, Done, Question, Verb};
use super::queued::{self, Queued};
use super::time::Now;
use crate::store::queue::StoredRequest;
use crate::store::{Claim, ClaimToken, Fingerprint, Hold};

/// How long there is a trace of a claim that was released, or that lapsed and that nobody came back for: its attempts go on
/// being counted. In milliseconds.
const TRACE_KEPT: i64 = 24 * 3600 * 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Waiting in the inbox.
    Accepted,
    Running,
    Completed,
    /// Given up. In the inbox, a dead letter.
    Failed,
    Released,
}

impl State {
    const ALL: [Self; 5] = [Self::Accepted, Self::Running, Self::Completed, Self::Failed, Self::Released];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// A row, but for its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) state: State,
    pub(super) token: ClaimToken,
    /// On the boot clock. None when it was another boot's, and once the claim is settled.
    pub(super) lease_until: Option<i64>,
    pub(super) received_at: i64,
    pub(super) processed_at: Option<i64>,
    pub(super) attempts: u32,
    pub(super) summary: Option<Arc<str>>,
    pub(super) fingerprint: Fingerprint,
    pub(super) event_type: Option<Arc<str>>,
    pub(super) expires_at: i64,
    /// One more with every write, so that nobody writes upon what they have not read.
    pub(super) version: i64,
    /// None of an event that is run inline.
    pub(super) queued: Option<Queued>,
}

/// An answer, and the record as it is to be from now on, if it changes.
pub(super) type Decision = (Answer, Option<Record>);

/// Decides one question about a key of which this is stored.
pub(super) fn decide(stored: Option<&Record>, question: &Question, now: &Now) -> Decision {
    let stored = stored.filter(|record| !record.is_over(now));
    let token = question.token;
    let queued = stored.filter(|record| record.queued.is_some());
    match (&question.verb, queued) {
        (Verb::Claim(bid), Some(record)) => queued::claim(record, bid),
        (Verb::Renew(bid), Some(record)) => queued::renew(record, token, bid, now),
        (Verb::Complete(_, done), Some(record)) => queued::complete(record, token, done, now),
        (Verb::Release, Some(record)) => queued::release(record, token),
        (Verb::Start(bid), Some(record)) => queued::start(record, token, bid, now),
        (Verb::Accept(bid, _), Some(record)) => queued::accept(record, token, bid),
        (Verb::Retry(after, reason), Some(record)) => queued::retry(record, token, *after, reason, now),
        (Verb::Bury(reason), Some(record)) => queued::bury(record, token, reason, now),
        (Verb::Claim(bid), None) => claim(stored, token, bid, now),
        (Verb::Renew(bid), None) => renew(stored, token, bid, now),
        (Verb::Complete(bid, done), None) => complete(stored, token, bid, done, now),
        (Verb::Release, None) => release(stored, token, now),
        (Verb::Accept(bid, parcel), None) => accept(stored, token, bid, parcel, now),
        (Verb::Start(_) | Verb::Retry(..) | Verb::Bury(_), None) => LOST,
    }
}

fn claim(stored: Option<&Record>, token: ClaimToken, bid: &Bid, now: &Now) -> Decision {
    let same_body = stored.is_some_and(|record| record.fingerprint == bid.fingerprint);
    let (attempts, received_at) = match stored {
        None => (1, now.wall),
        Some(record) => match record.state {
            State::Completed | State::Failed => return (Answer::Claim(Claim::Completed { same_body }), None),
            State::Running if record.token == token => (record.attempts, record.received_at),
            State::Running if !record.has_lapsed(now) => return (Answer::Claim(Claim::InFlight { same_body }), None),
            State::Running | State::Released | State::Accepted => {
                (record.attempts.saturating_add(1), record.received_at)
            }
        },
    };
    let taken = Record { attempts, received_at, ..Record::running(token, bid, now) };
    (Answer::Claim(Claim::Fresh { attempt: Some(attempts) }), Some(taken))
}

/// Free to keep, if it is free to claim.
fn accept(stored: Option<&Record>, token: ClaimToken, bid: &Bid, parcel: &Arc<StoredRequest>, now: &Now) -> Decision {
    match claim(stored, token, bid, now) {
        (Answer::Claim(Claim::Fresh { .. }), _) => {
            (Answer::Claim(Claim::Fresh { attempt: None }), Some(queued::arrived(token, bid, parcel, now)))
        }
        taken => taken,
    }
}

fn renew(stored: Option<&Record>, token: ClaimToken, bid: &Bid, now: &Now) -> Decision {
    let renewed = Record::running(token, bid, now);
    match stored {
        None => held(renewed),
        Some(record) if record.is_held_by(token) => {
            held(Record { lease_until: renewed.lease_until, expires_at: renewed.expires_at, ..record.clone() })
        }
        Some(_) => LOST,
    }
}

fn complete(stored: Option<&Record>, token: ClaimToken, bid: &Bid, done: &Done, now: &Now) -> Decision {
    let record = match stored {
        None => Record::running(token, bid, now),
        Some(record) if record.is_held_by(token) => record.clone(),
        Some(record) if record.is_completed() && record.token == token => return HELD_ALREADY,
        Some(_) => return LOST,
    };
    held(Record {
        state: if done.failed { State::Failed } else { State::Completed },
        lease_until: None,
        processed_at: Some(now.wall),
        summary: Some(done.summary.clone()),
        expires_at: now.wall + done.retention,
        ..record
    })
}

fn release(stored: Option<&Record>, token: ClaimToken, now: &Now) -> Decision {
    match stored {
        // As good as released. Not lost: nobody else has it, and it was not completed.
        None => HELD_ALREADY,
        Some(record) if record.is_held_by(token) => held(Record {
            state: State::Released,
            lease_until: None,
            expires_at: now.wall + TRACE_KEPT,
            ..record.clone()
        }),
        Some(record) if record.state == State::Released && record.token == token => HELD_ALREADY,
        Some(_) => LOST,
    }
}

pub(super) const LOST: Decision = (Answer::Settled(Hold::Lost), None);
pub(super) const HELD_ALREADY: Decision = (Answer::Settled(Hold::Held), None);

pub(super) fn held(record: Record) -> Decision {
    (Answer::Settled(Hold::Held), Some(record))
}

impl Record {
    /// A first claim.
    pub(super) fn running(token: ClaimToken, bid: &Bid, now: &Now) -> Self {
        Self {
            state: State::Running,
            token,
            lease_until: Some(now.lease + bid.lease),
            received_at: now.wall,
            processed_at: None,
            attempts: 1,
            summary: None,
            fingerprint: bid.fingerprint,
            event_type: bid.event_type.clone(),
            expires_at: now.wall + bid.lease + TRACE_KEPT,
            version: 0,
            queued: None,
        }
    }

    pub(super) fn is_held_by(&self, token: ClaimToken) -> bool {
        self.state == State::Running && self.token == token
    }

    fn is_completed(&self) -> bool {
        matches!(self.state, State::Completed | State::Failed)
    }

    fn has_lapsed(&self, now: &Now) -> bool {
        self.lease_until.is_none_or(|until| until <= now.lease)
    }

    /// As if it had never been. Not so a running claim, which only another claim ends.
    fn is_over(&self, now: &Now) -> bool {
        self.state != State::Running && self.expires_at <= now.wall
    }
}
