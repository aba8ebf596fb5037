//! The statements of one table: the sections of `statements.sql`, and how rows and filters are bound.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx::query::Query;
use sqlx::sqlite::{Sqlite, SqliteArguments};

use super::record::{Queued, Record};
use super::table::Table;
use super::time::{BodyRetention, Now};
use crate::EventKey;
use crate::store::batcher::LARGEST_BATCH;
use crate::store::queue::StoredRequest;
use crate::store::sections;

/// Completes a claim inside a handler's own transaction, in the default table, for drivers other than sqlx: the effect
/// and the completion are committed together, or neither is.
///
/// Parameters: `?1` the key (text, [`EventKey::as_str`](crate::EventKey::as_str)), `?2` the token (16 bytes), `?3` a
/// summary (text), `?4` the retention in milliseconds (integer). If it changes no row the claim is lost: roll back. The
/// transaction must have begun with `BEGIN IMMEDIATE`.
pub const COMPLETE_SQL: &str = r#"UPDATE "webhook_events" SET
    state = 'completed', lease_until = NULL, due_at = NULL, was_due_at = NULL, summary = ?3,
    processed_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER),
    expires_at = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) + ?4,
    version = version + 1
WHERE key = ?1 AND token = ?2 AND state = 'running'"#;

const SECTIONS: &str = include_str!("statements.sql");

/// The tables. All that a claim reads and writes is in the first one; its columns from `arrival` on are NULL for events
/// that are run inline. Requests are in a table of their own: a row of the first table is read and written often, and
/// must stay small. `applied` has the highest sequence that was completed of each resource, and not just discarded; it
/// outlives the events. `gone` has the highest arrival among deleted events.
const SCHEMA: &str = include_str!("schema.sql");

/// How many rows one statement takes, up to the largest batch. Each statement is prepared once; parameters beyond the
/// rows are not bound, which is NULL, and such rows are skipped.
const SIZES: [usize; 4] = [1, 8, 64, LARGEST_BATCH];

const COLUMNS: usize = 13;
const QUEUED_COLUMNS: usize = COLUMNS + 9;

/// How many expired rows a purge deletes at once: enough to keep up with the claims, too few to be felt.
pub(super) const PURGED_AT_ONCE: u64 = 256;

pub(super) type Statement = Query<'static, Sqlite, SqliteArguments>;

/// The texts for one table.
pub(super) struct Statements {
    pub(super) table: Table,
    pub(super) bodies: BodyRetention,
    pub(super) schema: Arc<str>,
    pub(super) complete: Arc<str>,
    reads: [Arc<str>; SIZES.len()],
    writes: [Arc<str>; SIZES.len()],
    queued_writes: [Arc<str>; SIZES.len()],
    request_writes: [Arc<str>; SIZES.len()],
    pub(super) last_arrival: Arc<str>,
    pub(super) mark_ordered: Arc<str>,
    purge: Arc<str>,
    purge_bodies: Arc<str>,
    pub(super) due: Arc<str>,
    pub(super) lapsed: Arc<str>,
    pub(super) endpoints: Arc<str>,
    pub(super) kinds: Arc<str>,
    pub(super) of_kind: Arc<str>,
    pub(super) lease: Arc<str>,
    pub(super) bury_unreadable: Arc<str>,
    pub(super) get: Arc<str>,
    pub(super) counts: Arc<str>,
    pub(super) count_waiting: Arc<str>,
}

impl Statements {
    pub(super) fn new(table: &Table, bodies: BodyRetention) -> Self {
        let text = |name| section(name, table, bodies, &[]).into();
        let sized = |name, columns| {
            SIZES.map(|size| {
                section(name, table, bodies, &[("rows", &vec![parameters(columns); size].join(", "))]).into()
            })
        };
        Self {
            schema: for_table(SCHEMA, table).into(),
            complete: complete(table, bodies).into(),
            reads: SIZES.map(|size| section("read", table, bodies, &[("rows", &parameters(size))]).into()),
            writes: sized("write", COLUMNS),
            queued_writes: sized("write_queued", QUEUED_COLUMNS),
            request_writes: sized("write_requests", 3),
            last_arrival: text("read_last_arrival"),
            mark_ordered: text("mark_ordered"),
            purge: text("purge"),
            purge_bodies: text("purge_bodies"),
            due: text("due"),
            lapsed: text("lapsed"),
            endpoints: text("endpoints"),
            kinds: text("kinds"),
            of_kind: text("of_kind"),
            lease: text("lease"),
            bury_unreadable: text("bury_unreadable"),
            get: text("get"),
            counts: text("counts"),
            count_waiting: text("count_waiting"),
            bodies,
            table: table.clone(),
        }
    }

    /// The names of the columns of the first table.
    pub(super) fn columns(&self) -> BTreeSet<&str> {
        let lines = self.schema.lines().skip(1).take_while(|line| !line.starts_with(')'));
        lines.filter_map(|line| line.split_whitespace().next()).collect()
    }

    /// Reads the rows of these keys.
    pub(super) fn read(&self, keys: impl ExactSizeIterator<Item = Arc<str>>) -> Statement {
        let statement = statement(sized(&self.reads, keys.len()));
        keys.fold(statement, Query::bind)
    }

    /// Writes these rows, but for those that were written since they were read.
    pub(super) fn write<'a>(
        &self,
        rows: impl ExactSizeIterator<Item = (&'a Arc<str>, &'a Record)>,
        boot: &Arc<str>,
    ) -> Statement {
        let statement = statement(sized(&self.writes, rows.len()));
        rows.fold(statement, |statement, (key, record)| bind(statement, key, record, boot))
    }

    /// The same for rows of which some are, or were, queued events. The first event to arrive gets the number `first`.
    pub(super) fn write_queued<'a>(
        &self,
        rows: impl ExactSizeIterator<Item = (&'a Arc<str>, &'a Record)>,
        boot: &Arc<str>,
        first: i64,
    ) -> Statement {
        let statement = statement(sized(&self.queued_writes, rows.len()));
        rows.fold(statement, |statement, (key, record)| {
            bind_queued(bind(statement, key, record, boot), key, record.queued.as_ref(), first)
        })
    }

    /// Writes the requests of events that arrive as these numbers.
    pub(super) fn write_requests(&self, requests: &[(i64, Arc<StoredRequest>)]) -> Statement {
        let statement = statement(sized(&self.request_writes, requests.len()));
        requests.iter().fold(statement, |statement, (id, request)| {
            statement.bind(*id).bind(request.head.to_vec()).bind(request.body.to_vec())
        })
    }

    /// Deletes some expired rows.
    pub(super) fn purge(&self, now: &Now) -> Statement {
        statement(&self.purge).bind(now.wall).bind(now.boot_id.clone()).bind(now.since_boot).bind(PURGED_AT_ONCE as i64)
    }

    /// Deletes some requests whose time is over; `None`, if they are kept for as long as the records.
    pub(super) fn purge_bodies(&self, now: &Now) -> Option<Statement> {
        let gone_by = self.bodies.gone_by(now)?;
        Some(statement(&self.purge_bodies).bind(gone_by).bind(PURGED_AT_ONCE as i64))
    }

    /// A section for operators, with the condition of their filter.
    pub(super) fn matching(&self, name: &str, condition: &str) -> String {
        section(name, &self.table, self.bodies, &[("matching", condition)])
    }
}

pub(super) fn statement(text: &Arc<str>) -> Statement {
    // Safe: only this module's texts and quoted table names.
    sqlx::query(AssertSqlSafe(text.clone()))
}

fn bind(statement: Statement, key: &Arc<str>, record: &Record, boot: &Arc<str>) -> Statement {
    statement
        .bind(key.clone())
        .bind(record.event_type.clone())
        .bind(record.state.stored())
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

/// The number of an event's first arrival stays that of its request. The request of an event that arrived before is not
/// bound again.
fn bind_queued(statement: Statement, key: &str, queued: Option<&Queued>, first: i64) -> Statement {
    let arrival = queued.map(|queued| queued.arrival.number(first));
    let request = queued.and_then(|queued| queued.request.as_deref());
    let order = request.and_then(|request| request.order.as_ref());
    let endpoint = request.and_then(|_| EventKey::parse(key)).map(|key| key.endpoint().to_owned());
    statement
        .bind(arrival)
        .bind(request.and(arrival))
        .bind(endpoint)
        .bind(queued.and_then(|queued| queued.due_at))
        .bind(queued.and_then(|queued| queued.was_due_at))
        .bind(order.map(|order| order.key.to_string()))
        .bind(order.and_then(|order| order.sequence))
        .bind(queued.and_then(|queued| queued.failure.clone()))
        .bind(queued.map(|queued| queued.started))
}

/// The text that holds so many rows.
fn sized(texts: &[Arc<str>; SIZES.len()], rows: usize) -> &Arc<str> {
    &texts[SIZES.iter().position(|size| rows <= *size).unwrap_or(SIZES.len() - 1)]
}

/// `(?, ?, ?)`. Without numbers: SQLite looks a number up by going through all that there are.
fn parameters(count: usize) -> String {
    format!("({})", vec!["?"; count].join(", "))
}

fn complete(table: &Table, bodies: BodyRetention) -> String {
    let text = COMPLETE_SQL.replace(&Table::default().to_string(), &table.to_string());
    match bodies.end_at_once() {
        true => text.replace("version = version + 1", "version = version + 1, parcel = NULL"),
        false => text,
    }
}

/// The section of that name on one line, with `values` for what differs from one text to another.
fn section(name: &str, table: &Table, bodies: BodyRetention, values: &[(&str, &str)]) -> String {
    let (completion_drops_body, drop_body) = match bodies.end_at_once() {
        true => ("excluded.state = 'completed'", ", parcel = NULL"),
        false => ("false", ""),
    };
    let common = [("completion_drops_body", completion_drops_body), ("drop_body", drop_body)];
    for_table(&sections::sql(&[SECTIONS], name, &[values, &common].concat()), table)
}

/// Fills in the names of the table, and of what belongs to it, in one pass: a table may be named like a placeholder.
fn for_table(text: &str, table: &Table) -> String {
    let mut parts = text.split("{table");
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (suffix, rest) = part.split_once('}').expect("a closing brace");
        // Writing to a string cannot fail.
        let _ = write!(named, "{}{rest}", table.suffixed(suffix));
    }
    named
}
