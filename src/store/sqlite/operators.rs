//! The queries and changes of operators.

use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::lease::stored_request;
use super::record::unknown;
use super::statements::{Statement, Statements, statement};
use super::time::{Now, millis};
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::filter_sql;
use crate::store::queue::{Change, DISCARDED, EventState, Filter, Page, QueueCounts, QueuedEvent, log};
use crate::store::record::event_state;

/// How many events one statement changes.
pub(super) const CHANGED_AT_ONCE: u64 = 1_000;

/// The condition for events in `state` that match a filter. An event that has expired matches none.
fn condition(filter: &Filter, state: EventState) -> String {
    filter_sql::condition(filter, &[state], ["?2", "?3", "?4", "?5", "?6"]) + " AND {remembered}"
}

/// A statement with a filter's values, `?1` to `?7`.
fn filtered(text: String, statements: &Statements, filter: &Filter, now: &Now) -> Statement {
    // Safe: only the statements' texts and quoted table names.
    sqlx::query(AssertSqlSafe(text))
        .bind(now.wall)
        .bind(filter.key.as_ref().map(|key| key.as_str().to_owned()))
        .bind(filter.event_type.as_deref().map(str::to_owned))
        .bind(filter.endpoint.as_deref().map(str::to_owned))
        .bind(filter.since.map(unix_millis))
        .bind(filter.before.map(unix_millis))
        .bind(statements.bodies.gone_by(now))
}

/// Lists a page of the events that match.
pub(super) fn list(statements: &Statements, filter: &Filter, page: &Page, now: &Now) -> Statement {
    let of_state = |state| statements.matching("list_state", &condition(filter, state));
    let lists: Vec<_> = filter.states(&EventState::ALL).into_iter().map(of_state).collect();
    let text = format!("{} ORDER BY arrival LIMIT ?9", lists.join(" UNION ALL "));
    filtered(text, statements, filter, now)
        .bind(page.after.map_or(-1, |after| i64::try_from(after).unwrap_or(i64::MAX)))
        .bind(i64::try_from(page.limit).unwrap_or(i64::MAX))
}

pub(super) fn get(statements: &Statements, key: &EventKey, now: &Now) -> Statement {
    statement(&statements.get).bind(now.wall).bind(key.as_str().to_owned()).bind(statements.bodies.gone_by(now))
}

/// Counts the events in each state, and looks up since when the oldest that is due has waited.
pub(super) fn counts(statements: &Statements, now: &Now) -> Statement {
    statement(&statements.counts).bind(now.wall).bind(now.boot_id.clone()).bind(now.since_boot)
}

/// Counts the completed events that match, and cannot be requeued.
pub(super) fn count_without_body(statements: &Statements, filter: &Filter, now: &Now) -> Statement {
    let text = statements.matching("count_without_body", &condition(filter, EventState::Completed));
    filtered(text, statements, filter, now)
}

/// Changes the first events in `state` that match, and had arrived by `last`.
pub(super) fn change(
    statements: &Statements,
    filter: &Filter,
    change: Change,
    state: EventState,
    last: i64,
    now: &Now,
) -> Statement {
    let (name, mut condition) = (section(change), condition(filter, state));
    if matches!(change, Change::Requeue { .. }) && state == EventState::Completed {
        condition.push_str(" AND {has_body}");
    }
    let statement = filtered(statements.matching(name, &condition), statements, filter, now);
    let statement = statement.bind(last).bind(CHANGED_AT_ONCE.cast_signed());
    match change {
        Change::Requeue { .. } => statement.bind(now.boot_id.clone()).bind(now.since_boot),
        Change::Discard { retention } => statement.bind(DISCARDED).bind(now.wall + millis(retention)),
        Change::Forget => statement,
    }
}

const fn section(change: Change) -> &'static str {
    match change {
        Change::Requeue { .. } => "requeue",
        Change::Discard { .. } => "discard",
        Change::Forget => "forget",
    }
}

pub(super) fn read_counts(rows: &[SqliteRow], now: &Now) -> Result<QueueCounts, sqlx::Error> {
    let mut counts = QueueCounts::default();
    for row in rows {
        let number = row.try_get::<i64, _>("number")?.unsigned_abs();
        match state(row)? {
            EventState::Waiting => counts.waiting = number,
            EventState::Running => counts.running = number,
            EventState::Completed => counts.completed = number,
            EventState::Dead => counts.dead = number,
        }
        if let Some(oldest) = row.try_get::<Option<i64>, _>("oldest")? {
            let age = from_unix_millis(now.wall).duration_since(from_unix_millis(oldest));
            counts.oldest_waiting = Some(age.unwrap_or_default());
        }
    }
    Ok(counts)
}

/// Reads an event as it is listed; `None`, if another program wrote its key.
pub(super) fn read_listed(row: &SqliteRow, now: &Now) -> Result<Option<QueuedEvent>, sqlx::Error> {
    let Some(key) = EventKey::parse(row.try_get("key")?) else { return Ok(None) };
    let arrival = row.try_get::<i64, _>("arrival")?.unsigned_abs();
    let mut event = QueuedEvent::new(key, arrival, from_unix_millis(row.try_get("received_at")?));
    event.state = state(row)?;
    event.event_type = row.try_get::<Option<&str>, _>("event_type")?.map(Into::into);
    event.processed_at = row.try_get::<Option<i64>, _>("processed_at")?.map(from_unix_millis);
    event.attempts = row.try_get::<i64, _>("attempts")?.try_into().unwrap_or(u32::MAX);
    event.summary = row.try_get::<Option<&str>, _>("summary")?.map(Into::into);
    if event.state == EventState::Waiting {
        // Shown on the wall clock, as people read it. A due time on another boot's clock is over.
        let same_boot = row.try_get::<&str, _>("boot")? == &*now.boot_id;
        let due_at = row.try_get::<Option<i64>, _>("due_at")?.filter(|_| same_boot).unwrap_or(now.since_boot);
        event.due_at = Some(from_unix_millis(now.wall + (due_at - now.since_boot)));
    }
    Ok(Some(event))
}

/// Reads an event with its request and its failures.
pub(super) fn read_whole(row: &SqliteRow, now: &Now) -> Result<Option<QueuedEvent>, sqlx::Error> {
    let Some(mut event) = read_listed(row, now)? else { return Ok(None) };
    event.failures = row.try_get::<Option<&str>, _>("failures")?.map(log::read).unwrap_or_default();
    if row.try_get::<Option<&[u8]>, _>("body")?.is_some() {
        event.request = Some(stored_request(row)?);
    }
    Ok(Some(event))
}

fn state(row: &SqliteRow) -> Result<EventState, sqlx::Error> {
    event_state(row.try_get("state")?).ok_or_else(|| unknown("state"))
}
