//! The queries and changes of operators, on connections of the pool: operators are few.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::connector::Connector;
use super::fault::Fault;
use super::statements::{Statement, Statements, statement};
use super::values::{bigint, event_key, in_range, milliseconds, stored_request, without_nul};
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::filter_sql;
use crate::store::queue::{Change, EventState, Filter, Page, QueueCounts, QueuedEvent, log};
use crate::store::record::event_state;

/// The rows that an operator has changed.
pub(super) struct ChangedRows {
    pub(super) events: u64,
    /// The orders of those events.
    pub(super) orders: Vec<String>,
    /// How many events were left unchanged, because their bodies are gone.
    pub(super) without_body: u64,
}

pub(super) async fn list(
    connector: &Connector,
    statements: &Statements,
    filter: &Filter,
    page: &Page,
) -> Result<Vec<QueuedEvent>, Fault> {
    let after = page.after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let condition =
        condition(filter, &EventState::ALL) + " AND {remembered} AND arrival > $1 ORDER BY arrival LIMIT $7";
    let list = filtered(&statements.matching("list", &condition), filter, after).bind(bigint(page.limit));
    let rows = connector.fetch_all(list).await?;
    // An event that cannot be read must not hide the others.
    Ok(rows.iter().filter_map(|row| read_listed(row).ok()).collect())
}

pub(super) async fn get(
    connector: &Connector,
    statements: &Statements,
    key: &EventKey,
) -> Result<Option<QueuedEvent>, Fault> {
    let rows = connector.fetch_all(statement(&statements.text("get")).bind(key.as_str())).await?;
    Ok(rows.first().map(read_whole).transpose()?)
}

pub(super) async fn counts(connector: &Connector, statements: &Statements) -> Result<QueueCounts, Fault> {
    let row = connector.fetch_one(statement(&statements.text("counts"))).await?;
    let count = |column| row.try_get::<i64, _>(column).map(i64::unsigned_abs);
    let oldest: Option<i64> = row.try_get("oldest")?;
    Ok(QueueCounts {
        waiting: count("waiting")?,
        running: count("running")?,
        completed: count("completed")?,
        dead: count("dead")?,
        // The receiver's clock may be ahead of the server's.
        oldest_waiting: oldest.map(|ms| Duration::from_millis(ms.max(0).unsigned_abs())),
    })
}

pub(super) async fn change(
    connector: &Connector,
    statements: &Statements,
    filter: &Filter,
    change: Change,
) -> Result<ChangedRows, Fault> {
    let mut condition = condition(filter, change.states());
    let (name, retention) = match change {
        Change::Requeue { .. } => {
            condition.push_str(" AND {remembered}");
            ("requeue", 0)
        }
        Change::Discard { retention } => ("discard", milliseconds(retention)),
        Change::Forget => ("delete", 0),
    };
    let row = connector.fetch_one(filtered(&statements.matching(name, &condition), filter, retention)).await?;
    let mut changed =
        ChangedRows { events: row.try_get::<i64, _>(0)?.unsigned_abs(), orders: Vec::new(), without_body: 0 };
    if !matches!(change, Change::Forget) {
        changed.orders = row.try_get(1)?;
        changed.without_body = row.try_get::<i64, _>(2)?.unsigned_abs();
    }
    Ok(changed)
}

/// The condition for events that match a filter and are in one of `states`.
fn condition(filter: &Filter, states: &[EventState]) -> String {
    let [since, before] =
        ["$5", "$6"].map(|ms| format!("timestamptz 'epoch' + {ms}::bigint * interval '1 millisecond'"));
    "WHERE arrival IS NOT NULL AND ".to_owned()
        + &filter_sql::condition(filter, states, ["$2", "$3", "$4", &since, &before])
}

/// A statement whose `$1` is a number of its own, and `$2` to `$6` are a filter's values. It is prepared anew each time,
/// so that its plan is made for the conditions that the filter has.
fn filtered(sql: &Arc<str>, filter: &Filter, own: i64) -> Statement {
    statement(sql)
        .persistent(false)
        .bind(own)
        .bind(filter.key.as_ref().map(|key| without_nul(key.as_str())))
        .bind(filter.event_type.as_deref().map(without_nul))
        .bind(filter.endpoint.as_deref().map(without_nul))
        .bind(filter.since.map(|since| in_range(unix_millis(since))))
        .bind(filter.before.map(|before| in_range(unix_millis(before))))
}

fn read_listed(row: &PgRow) -> Result<QueuedEvent, sqlx::Error> {
    let state = event_state(row.try_get("state")?);
    let time = |column| row.try_get::<Option<i64>, _>(column).map(|time| time.map(from_unix_millis));
    let arrival: i64 = row.try_get("arrival")?;
    let received_at = from_unix_millis(row.try_get("received")?);
    let mut event = QueuedEvent::new(event_key(row)?, arrival.unsigned_abs(), received_at);
    event.state = state.ok_or_else(|| sqlx::Error::Decode("the state is not that of a queued event".into()))?;
    event.event_type = row.try_get::<Option<String>, _>("event_type")?.map(Into::into);
    (event.due_at, event.processed_at) = (time("due")?, time("processed")?);
    event.attempts = row.try_get::<i32, _>("attempts")?.unsigned_abs();
    event.summary = row.try_get::<Option<String>, _>("summary")?.map(Into::into);
    Ok(event)
}

/// Reads an event with its request and its failures.
fn read_whole(row: &PgRow) -> Result<QueuedEvent, sqlx::Error> {
    let mut event = read_listed(row)?;
    event.failures = log::read(row.try_get::<Option<&str>, _>("failures")?.unwrap_or_default());
    if !row.try_get::<bool, _>("without_body")? {
        event.request = Some(stored_request(row)?);
    }
    Ok(event)
}
