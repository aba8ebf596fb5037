//! The settlements of a batch, and the statements that make them.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::connection::{BatchStatement, LateStatement};
use super::statements::{Statement, statement};
use super::values::{delay_milliseconds, index, milliseconds, without_nul};
use crate::EventKey;
use crate::store::queue::log;
use crate::store::{ClaimRequest, ClaimToken, Completion, Ending, Hold};

/// How long a released event is remembered, so that its attempts go on being counted.
const RELEASED_FOR: Duration = Duration::from_secs(24 * 3600);

/// One renewal, start, completion, release, retry or burial of a batch.
pub(super) struct SettleItem {
    /// A text: an event that cannot be read may have a key that this store never wrote.
    pub(super) key: Box<str>,
    token: ClaimToken,
    becomes: TargetState,
    /// The lease, the retention, or the delay of a retry.
    duration_ms: i64,
    summary: Option<Box<str>>,
    /// The line that is added to the log of failed attempts, if the event is queued.
    failure: Option<String>,
    /// When the lease of the claim ends, in microseconds since 1970, if no other claim under the token is meant.
    lease_until: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) enum SettleReply {
    Done(Hold),
    /// A queued event may be due now: this one, or the next one of the order that it has left.
    Freed {
        hold: Hold,
        order_left: Option<Box<str>>,
        /// When this event became due, in microseconds since 1970, if it was released.
        due: Option<i64>,
    },
    /// The token holds the claim, and another transaction holds the row. The settlement is to be repeated.
    Contended,
}

/// The state that a settlement brings its claim to, as `becomes` names it in `sql/claims.sql`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetState {
    Running,
    Completed,
    Failed,
    Released,
    // Only queued events become one of the following.
    Started,
    Retried,
    Dead,
}

impl TargetState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Released => "released",
            Self::Started => "started",
            Self::Retried => "retried",
            Self::Dead => "dead",
        }
    }

    fn is_for_queued_events(self) -> bool {
        matches!(self, Self::Started | Self::Retried | Self::Dead)
    }

    /// Returns whether an earlier try of this settlement can have left the row in `state`.
    fn matches_state(self, state: &str) -> bool {
        match self {
            Self::Running | Self::Started => false,
            Self::Completed | Self::Failed => matches!(state, "completed" | "failed"),
            Self::Released => matches!(state, "released" | "accepted"),
            Self::Retried => state == "accepted",
            Self::Dead => state == "failed",
        }
    }
}

impl SettleItem {
    pub(super) fn renew(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key.as_str(), claim.token, TargetState::Running, claim.lease)
    }

    pub(super) fn start(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key.as_str(), claim.token, TargetState::Started, claim.lease)
    }

    pub(super) fn end(claim: &ClaimRequest<'_>, ending: Ending<'_>) -> Self {
        match ending {
            Ending::Complete(completion) => Self::complete(claim, &completion),
            Ending::Release => Self::release(claim.key, claim.token),
            Ending::Retry { after, reason } => Self::retry(claim, after, reason),
            Ending::Bury { reason } => Self::bury(claim.key.as_str(), claim.token, reason),
        }
    }

    pub(super) fn release(key: &EventKey, token: ClaimToken) -> Self {
        Self::new(key.as_str(), token, TargetState::Released, RELEASED_FOR)
    }

    /// Releases the claim whose lease ends at `lease_until`, and no later one under the same token.
    pub(super) fn release_one(key: &EventKey, token: ClaimToken, lease_until: i64) -> Self {
        Self { lease_until: Some(lease_until), ..Self::release(key, token) }
    }

    /// Buries an event, also one whose row cannot be read.
    pub(super) fn bury(key: &str, token: ClaimToken, reason: &str) -> Self {
        let dead = Self::new(key, token, TargetState::Dead, Duration::ZERO);
        Self { summary: Some(without_nul(reason)), failure: Some(log::escaped(reason)), ..dead }
    }

    fn complete(claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Self {
        let becomes = if completion.failed { TargetState::Failed } else { TargetState::Completed };
        let summary = Some(without_nul(completion.summary));
        let failure = completion.failed.then(|| log::escaped(completion.summary));
        Self { summary, failure, ..Self::new(claim.key.as_str(), claim.token, becomes, completion.retention) }
    }

    fn retry(claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Self {
        let retried = Self::new(claim.key.as_str(), claim.token, TargetState::Retried, after);
        Self { duration_ms: delay_milliseconds(after), failure: Some(log::escaped(reason)), ..retried }
    }

    fn new(key: &str, token: ClaimToken, becomes: TargetState, duration: Duration) -> Self {
        Self {
            key: key.into(),
            token,
            becomes,
            duration_ms: milliseconds(duration),
            summary: None,
            failure: None,
            lease_until: None,
        }
    }

    /// Returns the reply for a row in this state that was not settled.
    fn reply_unsettled(&self, is_own: bool, state: &str, is_queued: bool) -> SettleReply {
        match state {
            _ if self.becomes.is_for_queued_events() && !is_queued => SettleReply::Done(Hold::Lost),
            "running" if is_own && self.lease_until.is_none() => SettleReply::Contended,
            _ if is_own && self.becomes.matches_state(state) => SettleReply::Done(Hold::Held),
            _ => SettleReply::Done(Hold::Lost),
        }
    }
}

/// Settles claims. A claim that is not settled is contended, until [`WhyUnsettled`] tells more.
pub(super) struct SettleStatement(pub(super) Arc<str>);

impl BatchStatement for SettleStatement {
    type Item = SettleItem;
    type Outcome = SettleReply;

    const MISSING: SettleReply = SettleReply::Contended;

    fn query(&self, items: &[&SettleItem]) -> Statement {
        keys_and_tokens(&self.0, items)
            .bind(items.iter().map(|item| item.becomes.as_str()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.duration_ms).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.summary.as_deref()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.failure.as_deref()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.lease_until).collect::<Vec<_>>())
    }

    fn read(&self, items: &[&SettleItem], row: &PgRow) -> Result<(usize, SettleReply), sqlx::Error> {
        let is_due = row.try_get::<Option<bool>, _>("is_due")? == Some(true);
        let reply = done(Hold::Held, is_due, row.try_get("leaves")?, row.try_get("due")?);
        Ok((index(row, items.len())?, reply))
    }

    fn on_late(&self, _: &[&SettleItem], late: LateStatement) {
        late.ignore();
    }
}

/// Looks up why claims were not settled. A claim without a row is lost.
pub(super) struct WhyUnsettled(pub(super) Arc<str>);

impl BatchStatement for WhyUnsettled {
    type Item = SettleItem;
    type Outcome = SettleReply;

    const MISSING: SettleReply = SettleReply::Done(Hold::Lost);

    fn query(&self, items: &[&SettleItem]) -> Statement {
        keys_and_tokens(&self.0, items)
    }

    fn read(&self, items: &[&SettleItem], row: &PgRow) -> Result<(usize, SettleReply), sqlx::Error> {
        let index = index(row, items.len())?;
        let (is_own, is_queued) = (row.try_get("own")?, row.try_get("queued")?);
        let reply = match items[index].reply_unsettled(is_own, row.try_get("state")?, is_queued) {
            // The handler's own transaction may have completed the event. Only this reply names the order that it left.
            SettleReply::Done(hold) => done(hold, false, row.try_get("leaves")?, None),
            reply => reply,
        };
        Ok((index, reply))
    }
}

fn keys_and_tokens(sql: &Arc<str>, items: &[&SettleItem]) -> Statement {
    statement(sql)
        .bind(items.iter().map(|item| &*item.key).collect::<Vec<_>>())
        .bind(items.iter().map(|item| item.token.as_bytes().as_slice()).collect::<Vec<_>>())
}

fn done(hold: Hold, is_due: bool, order_left: Option<String>, due: Option<i64>) -> SettleReply {
    match order_left.map(Into::into) {
        None if !is_due => SettleReply::Done(hold),
        order_left => SettleReply::Freed { hold, order_left, due },
    }
}
