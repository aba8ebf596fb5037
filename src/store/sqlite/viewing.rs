//! What operators look at, and which events they mean.

use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::bodies::Bodies;
use super::leasing;
use super::record::State;
use super::schema;
use super::statements::Statement;
use super::table::Table;
use super::time::Now;
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::queue::{EventState, Filter, Page, QueueCounts, QueuedEvent, log};

const COLUMNS: &str =
    "key, event_type, state, boot, due_at, received_at, processed_at, attempts, summary, arrival, order_key, sequence";

/// A value of a condition.
#[derive(Clone)]
pub(super) enum Value {
    Number(i64),
    Text(String),
    Bytes(Vec<u8>),
}

/// A part of a statement, with the values of its parameters.
#[derive(Clone, Default)]
pub(super) struct Fragment {
    text: String,
    values: Vec<Value>,
}

impl Fragment {
    /// Nothing that comes from outside may be in `text`; that is what values are for.
    pub(super) fn push(&mut self, text: &str, values: impl IntoIterator<Item = Value>) -> &mut Self {
        self.text.push_str(text);
        self.values.extend(values);
        self
    }

    pub(super) fn append(&mut self, other: Self) -> &mut Self {
        self.push(&other.text, other.values)
    }

    pub(super) fn statement(self) -> Statement {
        // Safe: only quoted table names and texts of this crate.
        let statement = sqlx::query(AssertSqlSafe(self.text));
        self.values.into_iter().fold(statement, |statement, value| match value {
            Value::Number(number) => statement.bind(number),
            Value::Text(text) => statement.bind(text),
            Value::Bytes(bytes) => statement.bind(bytes),
        })
    }
}

/// The condition for events in `state` that a filter means. What has expired is nothing that anybody could mean.
pub(super) fn matching(filter: &Filter, state: EventState, now: &Now) -> Fragment {
    let mut fragment = Fragment::default();
    let state = stored_as(state).as_str();
    fragment.push(&format!("state = '{state}' AND arrival IS NOT NULL AND expires_at > ?"), [Value::Number(now.wall)]);
    let texts = [
        (" AND key = ?", filter.key.as_ref().map(EventKey::as_str)),
        (" AND event_type = ?", filter.event_type.as_deref()),
        (" AND endpoint = ?", filter.endpoint.as_deref()),
    ];
    for (text, value) in texts {
        value.into_iter().for_each(|value| _ = fragment.push(text, [Value::Text(value.to_owned())]));
    }
    for (text, time) in [(" AND received_at >= ?", filter.since), (" AND received_at < ?", filter.before)] {
        time.into_iter().for_each(|time| _ = fragment.push(text, [Value::Number(unix_millis(time))]));
    }
    fragment
}

/// The condition for a completed event that can run again: its body is kept, and not for too long already.
fn has_body(table: &Table, bodies: Bodies, now: &Now) -> Fragment {
    let mut fragment = Fragment::default();
    fragment.push(&format!("EXISTS (SELECT 1 FROM {} WHERE id = parcel)", schema::parcels(table)), []);
    if let Some(gone) = bodies.gone_by(now) {
        fragment.push(" AND processed_at > ?", [Value::Number(gone)]);
    }
    fragment
}

/// Events in `state` that a filter means, and that can be requeued.
pub(super) fn requeuable(table: &Table, bodies: Bodies, filter: &Filter, state: EventState, now: &Now) -> Fragment {
    let mut fragment = matching(filter, state, now);
    if state == EventState::Completed {
        fragment.push(" AND ", []).append(has_body(table, bodies, now));
    }
    fragment
}

/// How many completed events a filter means that cannot be requeued.
pub(super) fn without_body(table: &Table, bodies: Bodies, filter: &Filter, now: &Now) -> Fragment {
    let mut fragment = Fragment::default();
    fragment.push(&format!("SELECT count(*) FROM {table} WHERE "), []);
    fragment.append(matching(filter, EventState::Completed, now));
    fragment.push(" AND NOT (", []).append(has_body(table, bodies, now)).push(")", []);
    fragment
}

/// Those of `states` that a filter means.
pub(super) fn states(filter: &Filter, states: &[EventState]) -> Vec<EventState> {
    states.iter().copied().filter(|state| filter.state.is_none_or(|wanted| wanted == *state)).collect()
}

/// A page of what a filter means. Each state has its own index, in the order of arrival.
pub(super) fn list(table: &Table, filter: &Filter, page: &Page, now: &Now) -> Fragment {
    let limit = Value::Number(page.limit.try_into().unwrap_or(i64::MAX));
    let after = Value::Number(page.after.map_or(-1, |after| after.try_into().unwrap_or(i64::MAX)));
    let mut fragment = Fragment::default();
    for (place, state) in states(filter, &EventState::ALL).into_iter().enumerate() {
        fragment.push(if place == 0 { "" } else { " UNION ALL " }, []);
        fragment.push(&format!("SELECT * FROM (SELECT {COLUMNS} FROM {table} WHERE "), []);
        fragment.append(matching(filter, state, now));
        fragment.push(" AND arrival > ? ORDER BY arrival LIMIT ?)", [after.clone(), limit.clone()]);
    }
    fragment.push(" ORDER BY arrival LIMIT ?", [limit]);
    fragment
}

pub(super) fn get(table: &Table, bodies: Bodies, key: &EventKey, now: &Now) -> Fragment {
    let parcels = schema::parcels(table);
    let mut fragment = Fragment::default();
    fragment.push(
        &format!(
            "SELECT {COLUMNS}, failures, head, body FROM {table} LEFT JOIN {parcels} ON {parcels}.id = {table}.parcel"
        ),
        [],
    );
    if let Some(gone) = bodies.gone_by(now) {
        fragment.push(" AND NOT (state = 'completed' AND processed_at <= ?)", [Value::Number(gone)]);
    }
    fragment.push(
        " WHERE key = ? AND arrival IS NOT NULL AND expires_at > ?",
        [Value::Text(key.as_str().to_owned()), Value::Number(now.wall)],
    );
    fragment
}

pub(super) fn waiting(table: &Table, up_to: u64) -> Fragment {
    let mut fragment = Fragment::default();
    let limit = Value::Number(up_to.try_into().unwrap_or(i64::MAX));
    fragment.push(
        &format!(
            "SELECT count(*) FROM (SELECT 1 FROM {table} WHERE state = 'accepted' AND arrival IS NOT NULL LIMIT ?)"
        ),
        [limit],
    );
    fragment
}

/// A row for each state, and since when the oldest that is due has waited.
pub(super) fn counts(table: &Table, now: &Now) -> Fragment {
    let mut fragment = Fragment::default();
    for state in EventState::ALL {
        fragment.push(&format!("SELECT '{}' AS state, count(*) AS number, ", stored_as(state).as_str()), []);
        match state {
            EventState::Waiting => {
                let oldest = format!(
                    "(SELECT min(received_at) FROM {table} INDEXED BY {} WHERE state = 'accepted' AND behind IS NULL \
                     AND (boot <> ? OR due_at <= ?)) AS oldest",
                    schema::waiting_index(table)
                );
                fragment.push(&oldest, [Value::Text(now.boot.to_string()), Value::Number(now.lease)]);
            }
            _ => _ = fragment.push("NULL AS oldest", []),
        }
        fragment.push(&format!(" FROM {table} WHERE "), []).append(matching(&Filter::all(), state, now));
        fragment.push(if state == EventState::Dead { "" } else { " UNION ALL " }, []);
    }
    fragment
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

/// An event as it is listed. None of a row whose key this crate did not write.
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
        // On the wall clock, as people read it. By another boot's clock nobody can tell: it is due.
        let same_boot = row.try_get::<&str, _>("boot")? == &*now.boot;
        let due_at = row.try_get::<Option<i64>, _>("due_at")?.filter(|_| same_boot).unwrap_or(now.lease);
        event.due_at = Some(from_unix_millis(now.wall + (due_at - now.lease)));
    }
    Ok(Some(event))
}

/// An event with everything that is kept of it.
pub(super) fn read_whole(row: &SqliteRow, now: &Now) -> Result<Option<QueuedEvent>, sqlx::Error> {
    let Some(mut event) = read_listed(row, now)? else { return Ok(None) };
    event.failures = row.try_get::<Option<&str>, _>("failures")?.map(log::read).unwrap_or_default();
    if row.try_get::<Option<&[u8]>, _>("body")?.is_some() {
        event.request = Some(leasing::parcel(row)?);
    }
    Ok(Some(event))
}

const fn stored_as(state: EventState) -> State {
    match state {
        EventState::Waiting => State::Accepted,
        EventState::Running => State::Running,
        EventState::Completed => State::Completed,
        EventState::Dead => State::Failed,
    }
}

fn state(row: &SqliteRow) -> Result<EventState, sqlx::Error> {
    let text: &str = row.try_get("state")?;
    let state = EventState::ALL.into_iter().find(|state| stored_as(*state).as_str() == text);
    state.ok_or_else(|| sqlx::Error::Decode("a row has an unknown state".into()))
}
