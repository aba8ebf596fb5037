use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgPool, Row as _};

use super::fault::Fault;
use super::lane::{Lane, Sheet};
use super::text::{milliseconds, storable};
use crate::EventKey;
use crate::store::group::{Answers, Engine};
use crate::store::{ClaimRequest, ClaimToken, Completion, Hold};

/// How long a released event is remembered, for the number of its attempts.
const RELEASED_FOR: Duration = Duration::from_secs(24 * 3600);

/// Nothing here waits for a row; a lock on the whole table is waited for until the deadline.
const NO_LOCK_TIMEOUT: Duration = Duration::ZERO;

/// One renewal, completion or release, as it is asked for in a batch.
pub(super) struct Settle {
    key: EventKey,
    token: ClaimToken,
    becomes: &'static str,
    /// How long from now it stays so.
    span_ms: i64,
    summary: Option<Box<str>>,
    /// The claim that is meant, of several under the token.
    fence: Option<i64>,
}

/// How it was answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Settled {
    Done(Hold),
    /// The claim is the token's, and another transaction has the row in hand. To be asked again.
    Contended,
}

impl Settle {
    pub(super) fn renew(claim: &ClaimRequest<'_>) -> Self {
        Self::new(claim.key.clone(), claim.token, "running", claim.lease)
    }

    pub(super) fn complete(claim: &ClaimRequest<'_>, completion: &Completion<'_>) -> Self {
        let becomes = if completion.failed { "failed" } else { "completed" };
        let summary = Some(storable(completion.summary));
        Self { summary, ..Self::new(claim.key.clone(), claim.token, becomes, completion.retention) }
    }

    pub(super) fn release(key: &EventKey, token: ClaimToken) -> Self {
        Self::new(key.clone(), token, "released", RELEASED_FOR)
    }

    /// Releases a claim that whoever asked for it does not know of, and no later one under the same token.
    pub(super) fn unheard(key: EventKey, token: ClaimToken, fence: i64) -> Self {
        Self { fence: Some(fence), ..Self::new(key, token, "released", RELEASED_FOR) }
    }

    fn new(key: EventKey, token: ClaimToken, becomes: &'static str, span: Duration) -> Self {
        Self { key, token, becomes, span_ms: milliseconds(span), summary: None, fence: None }
    }
}

/// Answers batches of renewals, completions and releases on a connection of its own.
pub(super) struct Settles {
    lane: Lane,
    sql: Arc<str>,
}

impl Settles {
    pub(super) fn new(pool: PgPool, deadline: Duration, sql: Arc<str>) -> Self {
        Self { lane: Lane::new("tower-webhook settles", pool, deadline, NO_LOCK_TIMEOUT), sql }
    }
}

impl Engine for Settles {
    type Question = Settle;
    type Answer = Settled;

    async fn answer(&self, batch: &[Settle]) -> Answers<Settled> {
        let until = self.lane.until();
        let sheet = SettleSheet { sql: &self.sql };
        let mut answers: Vec<_> = batch.iter().map(|_| Err(Fault::timed_out())).collect();
        for round in rounds(batch) {
            let rows: Vec<&Settle> = round.iter().map(|at| &batch[*at]).collect();
            let said = self.lane.ask(&sheet, &rows, until).await;
            for (at, said) in round.into_iter().zip(said) {
                answers[at] = said;
            }
        }
        answers.into_iter().map(|answer| answer.map_err(Into::into)).collect()
    }

    fn unheard(&self, _: Settle, _: Settled) {}
}

/// The places of a batch in statements that are run one after the other, each in the order of its keys: what is asked of one
/// key is done in the order in which it was asked.
fn rounds(batch: &[Settle]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut asked: HashMap<&EventKey, usize> = HashMap::with_capacity(batch.len());
    for (at, settle) in batch.iter().enumerate() {
        let round = asked.entry(&settle.key).or_default();
        match rounds.get_mut(*round) {
            Some(places) => places.push(at),
            None => rounds.push(vec![at]),
        }
        *round += 1;
    }
    for round in &mut rounds {
        round.sort_by(|one, other| batch[*one].key.as_str().cmp(batch[*other].key.as_str()));
    }
    rounds
}

struct SettleSheet<'a> {
    sql: &'a Arc<str>,
}

impl<'a> Sheet for SettleSheet<'a> {
    type Row = &'a Settle;
    type Outcome = Settled;

    fn query<'q>(&'q self, rows: &'q [&'a Settle]) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.sql.clone()))
            .bind(rows.iter().map(|settle| settle.key.as_str()).collect::<Vec<_>>())
            .bind(rows.iter().map(|settle| settle.token.as_bytes().as_slice()).collect::<Vec<_>>())
            .bind(rows.iter().map(|settle| settle.becomes).collect::<Vec<_>>())
            .bind(rows.iter().map(|settle| settle.span_ms).collect::<Vec<_>>())
            .bind(rows.iter().map(|settle| settle.summary.as_deref()).collect::<Vec<_>>())
            .bind(rows.iter().map(|settle| settle.fence).collect::<Vec<_>>())
    }

    fn read(&self, rows: &[&'a Settle], answer: &[PgRow]) -> Result<Vec<Settled>, sqlx::Error> {
        let mut said = vec![Settled::Contended; rows.len()];
        for row in answer {
            let (place, held): (i64, bool) = (row.try_get(0)?, row.try_get(1)?);
            let at = usize::try_from(place - 1).ok().and_then(|at| said.get_mut(at));
            let at = at.ok_or_else(|| sqlx::Error::Decode("an answer to what was not asked".into()))?;
            *at = Settled::Done(if held { Hold::Held } else { Hold::Lost });
        }
        Ok(said)
    }
}
