use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::access::Access;
use super::fault::Fault;
use super::lane::{Lane, Sheet, place};
use super::schema::Statements;
use crate::EventKey;
use crate::store::batcher::{Answers, BatchHandler};
use crate::store::{Claim, ClaimRequest, ClaimToken, Fingerprint, StoreError};

/// Answers what a receiver asks that limits how many events are waiting, on a connection of its own: handlers that have taken all of
/// the pool's connections must not keep it from an answer.
pub(super) struct Waiting {
    lane: Lane,
    count: Arc<str>,
    peek: PeekSheet,
}

pub(super) enum Question {
    /// How many events are waiting, up to so many.
    Count(u64),
    /// Whether an event is known.
    Peek(Peek),
}

#[derive(Clone, Copy)]
pub(super) enum Told {
    Count(u64),
    Known(Option<Claim>),
}

/// An event that somebody is about to have accepted.
pub(super) struct Peek {
    key: EventKey,
    token: ClaimToken,
    fingerprint: Fingerprint,
}

struct PeekSheet(Arc<str>);

impl Waiting {
    pub(super) fn new(access: &Access, deadline: Duration, statements: &Statements) -> Self {
        // In the order of the index, and no further than is asked, whatever the statistics say.
        let lane = Lane::new("tower-webhook counts", access, deadline, deadline).with("SET enable_bitmapscan = off");
        Self { lane, count: statements.waiting.clone(), peek: PeekSheet(statements.peek.clone()) }
    }

    async fn count(&self, up_to: u64, until: Instant) -> Result<u64, Fault> {
        let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
        let query = || sqlx::query(AssertSqlSafe(self.count.clone())).bind(up_to);
        let rows = self.lane.run_until(until, query).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(count.unsigned_abs())
    }
}

impl BatchHandler for Waiting {
    type Question = Question;
    type Answer = Told;

    /// One count answers all that were asked together, and one statement all events.
    async fn answer(&self, batch: &[Question]) -> Answers<Told> {
        let until = self.lane.until();
        let (mut most, mut peeks) = (None, Vec::new());
        for question in batch {
            match question {
                Question::Count(up_to) => most = most.max(Some(*up_to)),
                Question::Peek(peek) => peeks.push(peek),
            }
        }
        let count = match most {
            Some(up_to) => self.count(up_to, until).await,
            None => Ok(0),
        };
        let mut known = match *peeks {
            [] => Vec::new(),
            _ => self.lane.ask(&self.peek, &peeks, until).await,
        }
        .into_iter();
        let told = |question: &Question| match question {
            Question::Count(up_to) => count.clone().map(|count| Told::Count(count.min(*up_to))),
            Question::Peek(_) => known.next().unwrap_or_else(|| Err(Fault::timed_out())).map(Told::Known),
        };
        batch.iter().map(told).map(|told| told.map_err(StoreError::from)).collect()
    }

    fn on_abandoned(&self, _: Question, _: Told) {}
}

impl Peek {
    pub(super) fn new(claim: &ClaimRequest<'_>) -> Self {
        Self { key: claim.key.clone(), token: claim.token, fingerprint: claim.fingerprint }
    }

    /// What accepting it would be answered.
    fn judge(&self, row: &PgRow) -> Result<Claim, sqlx::Error> {
        let state: &str = row.try_get(1)?;
        let fingerprint = Fingerprint::from_u64(row.try_get::<i64, _>(3)?.cast_unsigned());
        let same_body = self.fingerprint == fingerprint;
        Ok(match state {
            // Accepted before under this very token.
            "accepted" if row.try_get::<&[u8], _>(2)? == self.token.as_bytes().as_slice() => {
                Claim::Fresh { attempt: None }
            }
            "accepted" => Claim::Accepted { same_body },
            "running" => Claim::InFlight { same_body },
            _ => Claim::Completed { same_body },
        })
    }
}

impl Sheet for PeekSheet {
    type Row = Peek;
    type Outcome = Option<Claim>;

    fn query(&self, peeks: &[&Peek]) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(AssertSqlSafe(self.0.clone()))
            .bind(peeks.iter().map(|peek| peek.key.as_str()).collect::<Vec<_>>())
            .bind(peeks.iter().map(|peek| peek.token.as_bytes().as_slice()).collect::<Vec<_>>())
    }

    fn read(&self, peeks: &[&Peek], answer: &[PgRow]) -> Result<Vec<Option<Claim>>, sqlx::Error> {
        let mut said: Vec<_> = peeks.iter().map(|peek| (*peek, None)).collect();
        for row in answer {
            let (peek, claim) = place(&mut said, row)?;
            *claim = Some(peek.judge(row)?);
        }
        Ok(said.into_iter().map(|(_, claim)| claim).collect())
    }
}
