//! The queries and changes of operators, on connections of the pool: operators are few.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::{Arguments as _, QueryBuilder, Row as _};

use super::connector::Connector;
use super::fault::Fault;
use super::statements::{Filtered, Statements, statement};
use super::values::{event_key, in_range, milliseconds, stored_request, without_nul};
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::queue::{Change, EventState, Filter, Page, QueueCounts, QueuedEvent, log};
use crate::store::record::{State, event_state};

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
    let mut query = matching(&statements.filtered("list"), filter, &EventState::ALL, PgArguments::default());
    query.push(" AND ").push(statements.text("remembered"));
    if let Some(after) = page.after {
        query.push(" AND arrival > ").push_bind(i64::try_from(after).unwrap_or(i64::MAX));
    }
    query.push(" ORDER BY arrival LIMIT ").push_bind(i64::try_from(page.limit).unwrap_or(i64::MAX));
    let rows = connector.fetch_all(query.build().persistent(false)).await?;
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
    let mut arguments = PgArguments::default();
    let filtered = match change {
        Change::Requeue { .. } => statements.filtered("requeue"),
        Change::Discard { retention } => {
            arguments.add(milliseconds(retention)).map_err(sqlx::Error::Encode)?;
            statements.filtered("discard")
        }
        Change::Forget => statements.filtered("delete"),
    };
    let mut query = matching(&filtered, filter, change.states(), arguments);
    if matches!(change, Change::Requeue { .. }) {
        query.push(" AND ").push(statements.text("remembered"));
    }
    query.push(&*filtered.after_sql);
    let row = connector.fetch_one(query.build().persistent(false)).await?;
    let mut changed =
        ChangedRows { events: row.try_get::<i64, _>(0)?.unsigned_abs(), orders: Vec::new(), without_body: 0 };
    if !matches!(change, Change::Forget) {
        changed.orders = row.try_get(1)?;
        changed.without_body = row.try_get::<i64, _>(2)?.unsigned_abs();
    }
    Ok(changed)
}

/// Begins a statement, up to the condition for events that match a filter and are in one of `states`. It is written
/// anew each time, so that its plan is made for the conditions that the filter has.
fn matching(
    statement: &Filtered,
    filter: &Filter,
    states: &[EventState],
    arguments: PgArguments,
) -> QueryBuilder<Postgres> {
    let mut query = QueryBuilder::with_arguments(&*statement.before_sql, arguments);
    query.push(" WHERE arrival IS NOT NULL");
    let states: Vec<_> = filter.states(states).into_iter().map(|state| State::from(state).stored()).collect();
    match *states {
        [] => _ = query.push(" AND false"),
        // As text and not as a parameter: an index contains some states only.
        [state] => _ = query.push(format_args!(" AND state = '{state}'")),
        _ => _ = query.push(format_args!(" AND state IN ('{}')", states.join("', '"))),
    }
    if let Some(key) = &filter.key {
        query.push(" AND key = ").push_bind(without_nul(key.as_str()));
    }
    if let Some(event_type) = &filter.event_type {
        query.push(" AND event_type = ").push_bind(without_nul(event_type));
    }
    if let Some(endpoint) = &filter.endpoint {
        query.push(" AND endpoint = ").push_bind(without_nul(endpoint));
    }
    for (time, comparison) in [(filter.since, ">="), (filter.before, "<")] {
        if let Some(time) = time {
            query.push(format_args!(" AND received_at {comparison} timestamptz 'epoch' + "));
            query.push_bind(in_range(unix_millis(time))).push(" * interval '1 millisecond'");
        }
    }
    query
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
