use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};
use sqlx::{AssertSqlSafe, Row as _, sqlite::SqliteRow};

use super::bodies::Bodies;
use super::leasing::LeaseTexts;
use super::queued::Queued;
use super::record::{Record, State};
use super::schema;
use super::table::Table;
use super::time::Now;
use crate::EventKey;
use crate::store::group::LARGEST_BATCH;
use crate::store::queue::StoredRequest;
use crate::store::{ClaimToken, Fingerprint};

/// Completes a claim inside of a handler's own transaction, in the default table, for drivers other than sqlx: effect and
/// completion are committed together, or neither is.
///
/// Parameters: `?1` the key (text, [`EventKey::as_str`](crate::EventKey::as_str)), `?2` the token (16 bytes), `?3` a summary (text), `?4` the
/// retention in milliseconds (integer). If it changes no row the claim is lost: roll back. The transaction must have
/// begun with `BEGIN IMMEDIATE`.
pub const COMPLETE_SQL: &str = r#"UPDATE "webhook_events" SET
    state = 'completed', lease_until = NULL, summary = ?3,
    processed_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
    expires_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?4,
    version = version + 1
WHERE key = ?1 AND token = ?2 AND state = 'running'"#;

/// How many rows one statement takes, up to the largest batch. Prepared once each; what is left over is unbound, which is NULL,
/// and skipped.
const SIZES: [usize; 4] = [1, 8, 64, LARGEST_BATCH];

/// Expired rows that go with one batch: enough to keep up with the claims, too few to be felt.
pub(super) const PURGED_AT_ONCE: u64 = 256;

const COLUMNS: [&str; 13] = [
    "key",
    "event_type",
    "state",
    "token",
    "boot",
    "lease_until",
    "received_at",
    "processed_at",
    "attempts",
    "summary",
    "fingerprint",
    "expires_at",
    "version",
];

/// What a row of the inbox has beside, but for what leases and lines make of it.
const QUEUED: [&str; 8] =
    ["arrival", "parcel", "endpoint", "due_at", "order_key", "sequence", "failures", "handler_started"];

pub(super) type Statement = Query<'static, Sqlite, SqliteArguments>;

/// The texts for one table.
pub(super) struct Statements {
    pub(super) schema: Arc<str>,
    pub(super) complete: Arc<str>,
    reads: [Arc<str>; SIZES.len()],
    writes: [Arc<str>; SIZES.len()],
    queued_writes: [Arc<str>; SIZES.len()],
    last_arrival: Arc<str>,
    keeps: [Arc<str>; SIZES.len()],
    fall_in: Arc<str>,
    purge: Arc<str>,
    purge_bodies: Arc<str>,
    pub(super) bodies: Bodies,
    pub(super) leases: LeaseTexts,
    pub(super) table: Table,
}

impl Statements {
    pub(super) fn new(table: &Table, bodies: Bodies) -> Self {
        Self {
            schema: schema::schema(table).into(),
            complete: complete(table, bodies).into(),
            reads: SIZES.map(|rows| read(table, rows).into()),
            writes: SIZES.map(|rows| write(table, rows).into()),
            queued_writes: SIZES.map(|rows| write_queued(table, bodies, rows).into()),
            last_arrival: format!("SELECT {}", schema::last_arrival(table)).into(),
            keeps: SIZES.map(|rows| keep(table, rows).into()),
            fall_in: fall_in(table).into(),
            purge: purge(table).into(),
            purge_bodies: purge_bodies(table).into(),
            leases: LeaseTexts::new(table),
            bodies,
            table: table.clone(),
        }
    }

    /// The rows of these keys.
    pub(super) fn read(&self, keys: impl ExactSizeIterator<Item = Arc<str>>) -> Statement {
        let statement = prepared(&self.reads[size(keys.len())]);
        keys.fold(statement, Query::bind)
    }

    /// Writes these rows, but for those that somebody else has written since they were read.
    pub(super) fn write<'a>(
        &self,
        rows: impl ExactSizeIterator<Item = (&'a Arc<str>, &'a Record)>,
        boot: &Arc<str>,
    ) -> Statement {
        let statement = prepared(&self.writes[size(rows.len())]);
        rows.fold(statement, |statement, (key, record)| bind(statement, key, record, boot))
    }

    /// The same for rows of which some are, or were, the inbox's. The first event to arrive has the number `first`.
    pub(super) fn write_queued<'a>(
        &self,
        rows: impl ExactSizeIterator<Item = (&'a Arc<str>, &'a Record)>,
        boot: &Arc<str>,
        first: i64,
    ) -> Statement {
        let statement = prepared(&self.queued_writes[size(rows.len())]);
        rows.fold(statement, |statement, (key, record)| {
            bind_queued(bind(statement, key, record, boot), key, record.queued.as_ref(), first)
        })
    }

    /// The highest arrival so far.
    pub(super) fn last_arrival(&self) -> Statement {
        prepared(&self.last_arrival)
    }

    /// Keeps the parcels of events that arrive as these numbers.
    pub(super) fn keep(&self, parcels: impl ExactSizeIterator<Item = (i64, Arc<StoredRequest>)>) -> Statement {
        let statement = prepared(&self.keeps[size(parcels.len())]);
        parcels.fold(statement, |statement, (id, parcel)| {
            statement.bind(id).bind(parcel.head.to_vec()).bind(parcel.body.to_vec())
        })
    }

    /// Marks those of the events from this number on that have others in front of them.
    pub(super) fn fall_in(&self, first: i64) -> Statement {
        prepared(&self.fall_in).bind(first)
    }

    /// Deletes some of what has expired. A running claim goes only if its lease has lapsed as well, by the clock of leases.
    pub(super) fn purge(&self, now: &Now) -> Statement {
        prepared(&self.purge).bind(now.wall).bind(now.boot.clone()).bind(now.lease).bind(PURGED_AT_ONCE as i64)
    }

    /// Deletes some heads and bodies whose time is over; `None`, if they are kept for as long as the records.
    pub(super) fn purge_bodies(&self, now: &Now) -> Option<Statement> {
        let gone = self.bodies.gone_by(now)?;
        Some(prepared(&self.purge_bodies).bind(gone).bind(PURGED_AT_ONCE as i64))
    }
}

/// Reads a row of [`Statements::read`]: its key, and the rest unless somebody else wrote it.
pub(super) fn parse(row: &SqliteRow, now: &Now) -> Result<(String, Result<Record, sqlx::Error>), sqlx::Error> {
    Ok((row.try_get("key")?, record(row, now)))
}

fn record(row: &SqliteRow, now: &Now) -> Result<Record, sqlx::Error> {
    let unreadable = |what: &str| sqlx::Error::Decode(format!("a row has an unknown {what}").into());
    let same_boot = row.try_get::<&str, _>("boot")? == &*now.boot;
    Ok(Record {
        state: State::parse(row.try_get("state")?).ok_or_else(|| unreadable("state"))?,
        token: ClaimToken::from_bytes(row.try_get::<&[u8], _>("token")?.try_into().map_err(|_| unreadable("token"))?),
        lease_until: row.try_get::<Option<i64>, _>("lease_until")?.filter(|_| same_boot),
        received_at: row.try_get("received_at")?,
        processed_at: None,
        attempts: row.try_get::<i64, _>("attempts")?.try_into().map_err(|_| unreadable("number of attempts"))?,
        summary: None,
        fingerprint: Fingerprint::from_u64(row.try_get::<i64, _>("fingerprint")?.cast_unsigned()),
        event_type: row.try_get::<Option<&str>, _>("event_type")?.map(Into::into),
        expires_at: row.try_get("expires_at")?,
        version: row.try_get("version")?,
        queued: match row.try_get::<Option<i64>, _>("arrival")? {
            None => None,
            Some(arrival) => {
                let due_at = row.try_get::<Option<i64>, _>("due_at")?.filter(|_| same_boot);
                let started = row.try_get::<Option<bool>, _>("handler_started")?.unwrap_or_default();
                Some(Queued::known(arrival, due_at, started))
            }
        },
    })
}

fn bind(statement: Statement, key: &Arc<str>, record: &Record, boot: &Arc<str>) -> Statement {
    statement
        .bind(key.clone())
        .bind(record.event_type.clone())
        .bind(record.state.as_str())
        .bind(record.token.as_bytes().to_vec())
        .bind(boot.clone())
        .bind(record.lease_until)
        .bind(record.received_at)
        .bind(record.processed_at)
        .bind(i64::from(record.attempts))
        .bind(record.summary.clone())
        .bind(record.fingerprint.as_u64().cast_signed())
        .bind(record.expires_at)
        .bind(record.version)
}

/// An event's number when it arrived is its parcel's for good. What is kept of one that arrived before is not bound again.
fn bind_queued(statement: Statement, key: &str, queued: Option<&Queued>, first: i64) -> Statement {
    let arrival = queued.map(|queued| queued.arrival.number(first));
    let parcel = queued.and_then(|queued| queued.parcel.as_deref());
    let order = parcel.and_then(|parcel| parcel.order.as_ref());
    let endpoint = parcel.and_then(|_| EventKey::parse(key)).map(|key| key.endpoint().to_owned());
    statement
        .bind(arrival)
        .bind(parcel.and(arrival))
        .bind(endpoint)
        .bind(queued.and_then(|queued| queued.due_at))
        .bind(order.map(|order| order.key.to_string()))
        .bind(order.and_then(|order| order.sequence))
        .bind(queued.and_then(|queued| queued.failure.clone()))
        .bind(queued.map(|queued| queued.started))
}

pub(super) fn prepared(text: &Arc<str>) -> Statement {
    // Safe: nothing but this file's text and a quoted table name.
    sqlx::query(AssertSqlSafe(text.clone()))
}

/// Which of [`SIZES`] holds so many rows.
fn size(rows: usize) -> usize {
    SIZES.iter().position(|size| rows <= *size).unwrap_or(SIZES.len() - 1)
}

fn read(table: &Table, rows: usize) -> String {
    let mut text = format!(
        "SELECT key, event_type, state, token, boot, lease_until, received_at, attempts, fingerprint, expires_at, version, \
         arrival, due_at, handler_started FROM {table} WHERE key IN "
    );
    parameters(&mut text, rows);
    text
}

fn write(table: &Table, rows: usize) -> String {
    upsert(table, &COLUMNS, rows, &set_columns())
}

/// While a row keeps its arrival, it keeps its parcel, and its log is added to. Otherwise it is another event's, or none of the
/// inbox's, from now on.
fn write_queued(table: &Table, bodies: Bodies, rows: usize) -> String {
    let columns: Vec<_> = COLUMNS.into_iter().chain(QUEUED).collect();
    let stays = format!("{table}.arrival IS excluded.arrival");
    let mut set = set_columns();
    set.extend(["arrival", "due_at", "handler_started"].map(|column| format!("{column} = excluded.{column}")));
    set.extend(
        ["endpoint", "order_key", "sequence"]
            .map(|column| format!("{column} = iif({stays}, {table}.{column}, excluded.{column})")),
    );
    let goes = if bodies.go_at_once() { "excluded.state = 'completed'" } else { "false" };
    set.push(format!(
        "parcel = CASE WHEN NOT ({stays}) THEN excluded.parcel WHEN {goes} THEN NULL ELSE {table}.parcel END"
    ));
    set.extend(["started_at", "behind"].map(|column| format!("{column} = iif({stays}, {table}.{column}, NULL)")));
    set.push(format!(
        "failures = CASE WHEN NOT ({stays}) THEN NULL WHEN excluded.failures IS NULL THEN {table}.failures \
         ELSE coalesce({table}.failures, '') || coalesce({table}.started_at, 0) || ' ' || excluded.failures END"
    ));
    upsert(table, &columns, rows, &set)
}

fn set_columns() -> Vec<String> {
    COLUMNS[1..].iter().map(|column| format!("{column} = excluded.{column}")).collect()
}

fn upsert(table: &Table, columns: &[&str], rows: usize, set: &[String]) -> String {
    let mut text = format!("INSERT INTO {table} ({}) SELECT * FROM ", columns.join(", "));
    values(&mut text, rows, columns.len());
    text.push_str(" WHERE column1 IS NOT NULL ON CONFLICT (key) DO UPDATE SET ");
    text.push_str(&set.join(", "));
    // A row is written as the version after the one that was read.
    let _ = write!(text, " WHERE {table}.version = excluded.version - 1");
    text
}

fn keep(table: &Table, rows: usize) -> String {
    let mut text = format!("INSERT OR REPLACE INTO {} (id, head, body) SELECT * FROM ", schema::parcels(table));
    values(&mut text, rows, 3);
    text.push_str(" WHERE column1 IS NOT NULL");
    text
}

fn fall_in(table: &Table) -> String {
    format!(
        "UPDATE {table} SET behind = 1 WHERE rowid IN (SELECT e.rowid FROM {table} AS e WHERE e.state = 'accepted' \
         AND e.arrival IS NOT NULL AND e.arrival >= ?1 AND e.order_key IS NOT NULL AND {})",
        schema::is_behind(table)
    )
}

fn purge(table: &Table) -> String {
    format!(
        "DELETE FROM {table} WHERE rowid IN (SELECT rowid FROM {table} WHERE expires_at <= ?1 \
         AND (state <> 'running' OR boot <> ?2 OR lease_until IS NULL OR lease_until <= ?3) ORDER BY expires_at LIMIT ?4)"
    )
}

/// A trigger deletes what the row does not refer to any more.
fn purge_bodies(table: &Table) -> String {
    format!(
        "UPDATE {table} SET parcel = NULL WHERE rowid IN (SELECT rowid FROM {table} INDEXED BY {} \
         WHERE state = 'completed' AND parcel IS NOT NULL AND processed_at <= ?1 ORDER BY processed_at LIMIT ?2)",
        schema::bodies_index(table)
    )
}

fn complete(table: &Table, bodies: Bodies) -> String {
    let text = COMPLETE_SQL.replace(&Table::default().to_string(), &table.to_string());
    match bodies.go_at_once() {
        true => text.replace("version = version + 1", "version = version + 1, parcel = NULL"),
        false => text,
    }
}

fn values(text: &mut String, rows: usize, columns: usize) {
    text.push_str("(VALUES ");
    for row in 0..rows {
        text.push_str(if row == 0 { "" } else { ", " });
        parameters(text, columns);
    }
    text.push(')');
}

/// `(?, ?, ?)`. Without numbers: SQLite looks a number up by going through all that there are.
fn parameters(text: &mut String, count: usize) {
    text.push_str("(?");
    for _ in 1..count {
        text.push_str(", ?");
    }
    text.push(')');
}
