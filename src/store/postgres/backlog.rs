//! The queries of a receiver that limits how many events wait.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use super::connection::{BatchStatement, DedicatedConnection};
use super::connector::Connector;
use super::fault::Fault;
use super::statements::{Statement, Statements, statement};
use super::values::{fingerprint, index};
use crate::EventKey;
use crate::store::batcher::{Answers, BatchHandler};
use crate::store::{Claim, ClaimRequest, ClaimToken, Fingerprint, StoreError};

/// Counts waiting events and looks up known ones, on a connection of its own: handlers that have taken all connections
/// of the pool must not keep a receiver from its answer.
pub(super) struct BacklogBatch {
    connection: DedicatedConnection,
    count_waiting_sql: Arc<str>,
    peek: PeekStatement,
}

pub(super) enum BacklogQuery {
    /// The number of waiting events, up to this one.
    Count(u64),
    Peek(PeekItem),
}

#[derive(Clone, Copy)]
pub(super) enum BacklogReply {
    Count(u64),
    Peeked(Option<Claim>),
}

/// An event that is about to be enqueued.
pub(super) struct PeekItem {
    key: EventKey,
    token: ClaimToken,
    fingerprint: Fingerprint,
}

struct PeekStatement(Arc<str>);

impl BacklogBatch {
    pub(super) fn new(connector: &Connector, statements: &Statements) -> Self {
        // The count goes in the order of the index, and no further than asked, whatever the statistics say.
        let connection = DedicatedConnection::new("tower-webhook counts", connector, connector.deadline)
            .with_settings("SET enable_bitmapscan = off");
        Self {
            connection,
            count_waiting_sql: statements.text("count_waiting"),
            peek: PeekStatement(statements.text("peek")),
        }
    }

    async fn count(&self, up_to: u64, until: Instant) -> Result<u64, Fault> {
        let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
        let rows = self.connection.fetch_all(until, || statement(&self.count_waiting_sql).bind(up_to)).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(count.unsigned_abs())
    }
}

impl BatchHandler for BacklogBatch {
    type Question = BacklogQuery;
    type Answer = BacklogReply;

    /// One count answers all counts of the batch, and one statement looks up all events.
    async fn answer(&self, batch: &[BacklogQuery]) -> Answers<BacklogReply> {
        let until = self.connection.deadline();
        let (mut most, mut items) = (None, Vec::new());
        for query in batch {
            match query {
                BacklogQuery::Count(up_to) => most = most.max(Some(*up_to)),
                BacklogQuery::Peek(item) => items.push(item),
            }
        }
        let count = match most {
            Some(up_to) => self.count(up_to, until).await,
            None => Ok(0),
        };
        let peeked = match *items {
            [] => Vec::new(),
            _ => self.connection.run_batch(&self.peek, &items, until).await,
        };
        let mut peeked = peeked.into_iter();
        let reply = |query: &BacklogQuery| match query {
            BacklogQuery::Count(up_to) => count.clone().map(|count| BacklogReply::Count(count.min(*up_to))),
            BacklogQuery::Peek(_) => peeked.next().unwrap_or_else(|| Err(Fault::timed_out())).map(BacklogReply::Peeked),
        };
        batch.iter().map(reply).map(|reply| reply.map_err(StoreError::from)).collect()
    }

    fn on_abandoned(&self, _: BacklogQuery, _: BacklogReply) {}
}

impl PeekItem {
    pub(super) fn new(claim: &ClaimRequest<'_>) -> Self {
        Self { key: claim.key.clone(), token: claim.token, fingerprint: claim.fingerprint }
    }

    /// Returns the claim that enqueuing the event would return.
    fn claim(&self, row: &PgRow) -> Result<Claim, sqlx::Error> {
        let same_body = self.fingerprint == fingerprint(row, "known")?;
        Ok(match row.try_get("state")? {
            // The event was enqueued before under this token.
            "accepted" if row.try_get::<&[u8], _>("holder")? == self.token.as_bytes().as_slice() => {
                Claim::Fresh { attempt: None }
            }
            "accepted" => Claim::Accepted { same_body },
            "running" => Claim::InFlight { same_body },
            _ => Claim::Completed { same_body },
        })
    }
}

impl BatchStatement for PeekStatement {
    type Item = PeekItem;
    type Outcome = Option<Claim>;

    const MISSING: Option<Claim> = None;

    fn query(&self, items: &[&PeekItem]) -> Statement {
        statement(&self.0)
            .bind(items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>())
            .bind(items.iter().map(|item| item.token.as_bytes().as_slice()).collect::<Vec<_>>())
    }

    fn read(&self, items: &[&PeekItem], row: &PgRow) -> Result<(usize, Option<Claim>), sqlx::Error> {
        let index = index(row, items.len())?;
        Ok((index, Some(items[index].claim(row)?)))
    }
}
