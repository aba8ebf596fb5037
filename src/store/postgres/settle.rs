use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row as _};

use super::lane::{Sheet, place};
use super::late::Late;
use super::text::{milliseconds, pause, storable};
use crate::EventKey;
use crate::store::queue::log;
use crate::store::{ClaimRequest, ClaimToken, Completion, Hold};

/// How long a released event is remembered, for the number of its attempts.
const RELEASED_FOR: Duration = Duration::from_secs(24 * 3600);

/// One renewal, start, completion, release, retry or burial, as it is asked for in a batch.
pub(super) struct Settle {
    /// As text: an event may have a key that this store never wrote.
    pub(super) key: Box<str>,
    token: ClaimToken,
    becomes: Becomes,
    /// How long from now it stays so.
    span_ms: i64,
    summary: Option<Box<str>>,
    /// What is noted down of an attempt at an event of an inbox.
    failure: Option<String>,
    /// The claim that is meant, of several under the token.
    fence: Option<i64>,
}

/// How it was answered.
#[derive(Clone, Debug)]
pub(super) enum Settled {
    Done(Hold),
    /// An event of the inbox may be due now: this one, or the next one of the order that it has left.
    Freed {
        hold: Hold,
        leaves: Option<Box<str>>,
        /// Since when this one is due again, in microseconds since 1970, if it was put back.
        due: Option<i64>,
    },
    /// The claim is the token's, and another transaction has the row in hand. To be asked again.
    Contended,
}

/// The state that a claim is brought to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Becomes {
    Running,
    Completed,
    Failed,
    Released,
    /// Of events of an inbox only.
    Started,
    Retried,
    Dead,
}

impl Becomes {
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

    /// Whether there is no such thing but in an inbox.
    fn is_of_an_inbox(self) -> bool {
        matches!(self, Self::Started | Self::Retried | Self::Dead)
    }

    /// Whether it was done before under the same token, and the reply lost.
    fn is_done_by(self, state: &str) -> bool {
        match self {
            Self::Running | Self::Started => false,
            Self::Completed | Self::Failed => matches!(state, "completed" | "failed"),
            Self::Released => matches!(state, "released" | "accepted"),
            Self::Retried => state == "accepted",
            Self::Dead => state == "failed",
        }
    }
}

impl Settle {
    pub(super) fn renew(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key, claim.token, Becomes::Running, claim.lease)
    }

    pub(super) fn start(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key, claim.token, Becomes::Started, claim.lease)
    }

    pub(super) fn complete(claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Self {
        let becomes = if completion.failed { Becomes::Failed } else { Becomes::Completed };
        let summary = Some(storable(completion.summary));
        let failure = completion.failed.then(|| log::escaped(completion.summary));
        Self { summary, failure, ..Self::new(claim.key, claim.token, becomes, completion.retention) }
    }

    pub(super) fn retry(claim: &ClaimRequest<'_>, after: Duration, reason: &str) -> Self {
        let retried = Self::new(claim.key, claim.token, Becomes::Retried, after);
        Self { span_ms: pause(after), failure: Some(log::escaped(reason)), ..retried }
    }

    pub(super) fn bury(claim: &ClaimRequest<'_>, reason: &str) -> Self {
        Self::bury_row(claim.key.as_str(), claim.token, reason)
    }

    /// The same, of an event that cannot be read.
    pub(super) fn bury_row(key: &str, token: ClaimToken, reason: &str) -> Self {
        let dead = Self::about(key, token, Becomes::Dead, Duration::ZERO);
        Self { summary: Some(storable(reason)), failure: Some(log::escaped(reason)), ..dead }
    }

    pub(super) fn release(key: &EventKey, token: ClaimToken) -> Self {
        Self::new(key, token, Becomes::Released, RELEASED_FOR)
    }

    /// Releases a claim that whoever asked for it does not know of, and no later one under the same token.
    pub(super) fn unheard(key: &EventKey, token: ClaimToken, fence: i64) -> Self {
        Self { fence: Some(fence), ..Self::new(key, token, Becomes::Released, RELEASED_FOR) }
    }

    fn new(key: &EventKey, token: ClaimToken, becomes: Becomes, span: Duration) -> Self {
        Self::about(key.as_str(), token, becomes, span)
    }

    fn about(key: &str, token: ClaimToken, becomes: Becomes, span: Duration) -> Self {
        Self { key: key.into(), token, becomes, span_ms: milliseconds(span), summary: None, failure: None, fence: None }
    }

    /// What is to be said of a row in this state that was not settled.
    fn judge(&self, own: bool, state: &str, queued: bool) -> Settled {
        match state {
            _ if self.becomes.is_of_an_inbox() && !queued => Settled::Done(Hold::Lost),
            "running" if own && self.fence.is_none() => Settled::Contended,
            _ if own && self.becomes.is_done_by(state) => Settled::Done(Hold::Held),
            _ => Settled::Done(Hold::Lost),
        }
    }
}

/// Settlements; those that were not done are contended, until they are looked at.
pub(super) struct SettleSheet(pub(super) Arc<str>);

impl Sheet for SettleSheet {
    type Row = Settle;
    type Outcome = Settled;

    fn query(&self, settles: &[&Settle]) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.0.clone()))
            .bind(settles.iter().map(|settle| &*settle.key).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.token.as_bytes().as_slice()).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.becomes.as_str()).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.span_ms).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.summary.as_deref()).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.failure.as_deref()).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.fence).collect::<Vec<_>>())
    }

    fn read(&self, settles: &[&Settle], answer: &[PgRow]) -> Result<Vec<Settled>, sqlx::Error> {
        let mut said = vec![Settled::Contended; settles.len()];
        for row in answer {
            let is_due: Option<bool> = row.try_get(1)?;
            *place(&mut said, row)? = freed(Hold::Held, is_due == Some(true), row.try_get(2)?, row.try_get(3)?);
        }
        Ok(said)
    }

    fn overdue(&self, _: &[&Settle], late: Late) {
        late.let_end();
    }
}

/// Why settlements were not done. What has no row is lost.
pub(super) struct LookSheet(pub(super) Arc<str>);

impl Sheet for LookSheet {
    type Row = Settle;
    type Outcome = Settled;

    fn query(&self, settles: &[&Settle]) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.0.clone()))
            .bind(settles.iter().map(|settle| &*settle.key).collect::<Vec<_>>())
            .bind(settles.iter().map(|settle| settle.token.as_bytes().as_slice()).collect::<Vec<_>>())
    }

    fn read(&self, settles: &[&Settle], answer: &[PgRow]) -> Result<Vec<Settled>, sqlx::Error> {
        let mut said: Vec<_> = settles.iter().map(|settle| (*settle, Settled::Done(Hold::Lost))).collect();
        for row in answer {
            let (settle, settled) = place(&mut said, row)?;
            *settled = match settle.judge(row.try_get(1)?, row.try_get(2)?, row.try_get(3)?) {
                // A handler's own transaction may have completed it, and only now is anybody told.
                Settled::Done(hold) => freed(hold, false, row.try_get(4)?, None),
                settled => settled,
            };
        }
        Ok(said.into_iter().map(|(_, settled)| settled).collect())
    }
}

fn freed(hold: Hold, is_due: bool, leaves: Option<String>, due: Option<i64>) -> Settled {
    match leaves.map(Into::into) {
        None if !is_due => Settled::Done(hold),
        leaves => Settled::Freed { hold, leaves, due },
    }
}
