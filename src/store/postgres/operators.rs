use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::{Arguments as _, AssertSqlSafe, QueryBuilder, Row as _};

use super::access::Access;
use super::fault::Fault;
use super::parcel;
use super::schema::{DELETE_SQL, WHICH};
use super::table::TableName;
use super::text::{milliseconds, storable, within_reach};
use crate::EventKey;
use crate::clock::{from_unix_millis, unix_millis};
use crate::store::queue::{Change, EventState, Filter, Page, QueueCounts, QueuedEvent, log};

/// What operators ask, about a store's table. Few ask, so it is the pool's connections that answer.
#[derive(Clone)]
pub(super) struct OperatorsSql {
    list: Which,
    requeue: Which,
    discard: Which,
    forget: Which,
    get: Arc<str>,
    counts: Arc<str>,
}

/// What has expired is gone, whether it is purged yet or not.
const REMEMBERED: &str = " AND (expires_at IS NULL OR expires_at > now())";

/// The rows that an operator has changed.
pub(super) struct ChangedRows {
    pub(super) events: u64,
    /// The orders of those events.
    pub(super) orders: Vec<String>,
    /// How many events were left as they are, because their bodies are gone.
    pub(super) without_body: u64,
}

/// A statement about some events: what is before and what is after it is said which. Written anew for every question, so that
/// its plan is made for the conditions that there are.
#[derive(Clone)]
struct Which {
    before: Arc<str>,
    after: Arc<str>,
}

impl OperatorsSql {
    /// `keeping` has a statement that completes events say for how long their bodies are kept.
    pub(super) fn about(table: &TableName, keeping: impl Fn(&str) -> String) -> Self {
        let render = |sql: &str| Arc::from(table.render(sql));
        let which = |sql: &str| {
            let (before, after) = sql.split_once(WHICH).unwrap_or((sql, ""));
            Which { before: render(before), after: render(after) }
        };
        Self {
            list: which(include_str!("sql/list.sql")),
            requeue: which(include_str!("sql/requeue.sql")),
            discard: which(&keeping(include_str!("sql/discard.sql"))),
            forget: which(DELETE_SQL),
            get: render(include_str!("sql/get.sql")),
            counts: render(include_str!("sql/counts.sql")),
        }
    }

    pub(super) async fn list(&self, access: &Access, filter: &Filter, page: &Page) -> Result<Vec<QueuedEvent>, Fault> {
        let mut statement = self.list.of(filter, &EventState::ALL, PgArguments::default());
        statement.push(REMEMBERED);
        if let Some(after) = page.after {
            statement.push(" AND arrival > ").push_bind(i64::try_from(after).unwrap_or(i64::MAX));
        }
        statement.push(" ORDER BY arrival LIMIT ").push_bind(i64::try_from(page.limit).unwrap_or(i64::MAX));
        let rows = access.fetch_all(statement.build().persistent(false)).await?;
        // One that cannot be read must not hide the others.
        Ok(rows.iter().filter_map(|row| kept(row).ok()).collect())
    }

    pub(super) async fn get(&self, access: &Access, key: &EventKey) -> Result<Option<QueuedEvent>, Fault> {
        let statement = sqlx::query(AssertSqlSafe(self.get.clone())).bind(key.as_str());
        let rows = access.fetch_all(statement).await?;
        Ok(rows.first().map(whole).transpose()?)
    }

    pub(super) async fn change(&self, access: &Access, filter: &Filter, change: Change) -> Result<ChangedRows, Fault> {
        let mut arguments = PgArguments::default();
        let which = match change {
            Change::Requeue { .. } => &self.requeue,
            Change::Discard { retention } => {
                arguments.add(milliseconds(retention)).map_err(sqlx::Error::Encode)?;
                &self.discard
            }
            Change::Forget => return self.forget(access, filter).await,
        };
        let mut statement = which.of(filter, change.states(), arguments);
        if matches!(change, Change::Requeue { .. }) {
            statement.push(REMEMBERED);
        }
        which.change(access, statement).await
    }

    async fn forget(&self, access: &Access, filter: &Filter) -> Result<ChangedRows, Fault> {
        let mut statement = self.forget.of(filter, Change::Forget.states(), PgArguments::default());
        statement.push(&*self.forget.after);
        let row = access.fetch_one(statement.build().persistent(false)).await?;
        let events = row.try_get::<i64, _>(0)?.unsigned_abs();
        Ok(ChangedRows { events, orders: Vec::new(), without_body: 0 })
    }

    pub(super) async fn counts(&self, access: &Access) -> Result<QueueCounts, Fault> {
        let row = access.fetch_one(sqlx::query(AssertSqlSafe(self.counts.clone()))).await?;
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
}

impl Which {
    async fn change(&self, access: &Access, mut statement: QueryBuilder<Postgres>) -> Result<ChangedRows, Fault> {
        statement.push(&*self.after);
        let row = access.fetch_one(statement.build().persistent(false)).await?;
        let without_body: i64 = row.try_get(2)?;
        Ok(ChangedRows {
            events: row.try_get::<i64, _>(0)?.unsigned_abs(),
            orders: row.try_get(1)?,
            without_body: without_body.unsigned_abs(),
        })
    }

    /// The statement up to its conditions, for events in one of `states`.
    fn of(&self, filter: &Filter, states: &[EventState], arguments: PgArguments) -> QueryBuilder<Postgres> {
        let mut statement = QueryBuilder::with_arguments(&*self.before, arguments);
        statement.push(" WHERE arrival IS NOT NULL");
        let wanted = |state: &&EventState| filter.state.is_none_or(|only| only == **state);
        let states: Vec<_> = states.iter().filter(wanted).map(|state| written(*state)).collect();
        match *states {
            [] => _ = statement.push(" AND false"),
            // Said in the statement, and not with it: an index is of some states only.
            [one] => _ = statement.push(format_args!(" AND state = '{one}'")),
            _ => _ = statement.push(format_args!(" AND state IN ('{}')", states.join("', '"))),
        }
        if let Some(key) = &filter.key {
            statement.push(" AND key = ").push_bind(storable(key.as_str()));
        }
        if let Some(event_type) = &filter.event_type {
            statement.push(" AND event_type = ").push_bind(storable(event_type));
        }
        if let Some(endpoint) = &filter.endpoint {
            statement.push(" AND endpoint = ").push_bind(storable(endpoint));
        }
        for (time, comparison) in [(filter.since, ">="), (filter.before, "<")] {
            if let Some(time) = time {
                statement.push(format_args!(" AND received_at {comparison} timestamptz 'epoch' + "));
                statement.push_bind(within_reach(unix_millis(time))).push(" * interval '1 millisecond'");
            }
        }
        statement
    }
}

/// A state as it is in the table.
fn written(state: EventState) -> &'static str {
    match state {
        EventState::Waiting => "accepted",
        EventState::Running => "running",
        EventState::Completed => "completed",
        EventState::Dead => "failed",
    }
}

fn kept(row: &PgRow) -> Result<QueuedEvent, sqlx::Error> {
    let key = EventKey::parse(row.try_get("key")?).ok_or_else(|| sqlx::Error::Decode("no key of an event".into()))?;
    let state: &str = row.try_get("state")?;
    let state = EventState::ALL.into_iter().find(|known| written(*known) == state);
    let time = |column| row.try_get::<Option<i64>, _>(column).map(|time| time.map(from_unix_millis));
    let arrival: i64 = row.try_get("arrival")?;
    let mut event = QueuedEvent::new(key, arrival.unsigned_abs(), from_unix_millis(row.try_get("received")?));
    event.state = state.ok_or_else(|| sqlx::Error::Decode("no state of an event".into()))?;
    event.event_type = row.try_get::<Option<String>, _>("event_type")?.map(Into::into);
    (event.due_at, event.processed_at) = (time("due")?, time("processed")?);
    event.attempts = row.try_get::<i32, _>("attempts")?.unsigned_abs();
    event.summary = row.try_get::<Option<String>, _>("summary")?.map(Into::into);
    Ok(event)
}

fn whole(row: &PgRow) -> Result<QueuedEvent, sqlx::Error> {
    let mut event = kept(row)?;
    event.failures = log::read(row.try_get::<Option<&str>, _>("failures")?.unwrap_or_default());
    if !row.try_get::<bool, _>("without_body")? {
        event.request = Some(parcel::read(row)?);
    }
    Ok(event)
}
