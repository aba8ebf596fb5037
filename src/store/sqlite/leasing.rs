//! How events come to workers: one statement, which picks them and marks them as taken.

use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::schema;
use super::statements::{Statement, prepared};
use super::table::Table;
use super::time::{Now, millis};
use crate::EventKey;
use crate::inbox::{LAPSED, LeaseRequest, Leased, Order, Parcel, from_unix_millis};
use crate::store::{ClaimToken, Fingerprint};

/// How large the parcels of one lease are together, unless the first alone is larger. All of them are read under the write lock,
/// and have to come before the worker's patience ends: a lease that is too large would be too large every time.
const LARGEST_LEASE: i64 = 4 << 20;

/// What a worker asks for.
#[derive(Clone)]
pub(super) struct Wanted {
    limit: i64,
    /// In milliseconds.
    lease: i64,
    endpoints: Option<Arc<str>>,
    except_endpoints: Option<Arc<str>>,
    except_types: Option<Arc<str>>,
}

impl Wanted {
    pub(super) fn new(request: &LeaseRequest<'_>) -> Self {
        Self {
            limit: request.limit.try_into().unwrap_or(i64::MAX),
            lease: millis(request.lease),
            endpoints: json(request.endpoints),
            except_endpoints: json(request.except_endpoints),
            except_types: json(request.except_types),
        }
    }
}

/// The texts for one table.
pub(super) struct LeaseTexts {
    is_due: Arc<str>,
    lease: Arc<str>,
}

impl LeaseTexts {
    pub(super) fn new(table: &Table) -> Self {
        let due = due(table);
        let (parcels, applied) = (schema::parcels(table), schema::applied(table));
        let kept = |column| format!("(SELECT {column} FROM {parcels} WHERE id = {table}.parcel) AS {column}");
        // The rows come in any order, and are sorted by what `due_at` is set to: since when one could have been leased.
        let lease = format!(
            "UPDATE {table} SET state = 'running', token = randomblob(16), boot = ?1, lease_until = ?7, started_at = ?8, \
             attempts = attempts + 1, version = version + 1, \
             due_at = iif(boot <> ?1, -1, iif(state = 'running', coalesce(lease_until, -1), due_at)), \
             failures = iif(state = 'running', coalesce(failures, '') || coalesce(started_at, 0) || ' ' || ?8 || ' ' || ?9, \
             failures) \
             WHERE rowid IN ({taken}) \
             RETURNING key, token, attempts, event_type, fingerprint, received_at, due_at, arrival, order_key, sequence, \
             {head}, {body}, EXISTS (SELECT 1 FROM {applied} AS a WHERE a.order_key = {table}.order_key \
             AND a.sequence >= {table}.sequence) AS superseded",
            taken = taken(&due, table),
            head = kept("head"),
            body = kept("body"),
        );
        Self { is_due: format!("SELECT EXISTS (SELECT 1 FROM ({due}))").into(), lease: lease.into() }
    }

    /// Whether there is anything to take. With a limit of nothing, there is nothing.
    pub(super) fn is_due(&self, wanted: &Wanted, now: &Now) -> Statement {
        bind(&self.is_due, &Wanted { limit: wanted.limit.min(1), ..wanted.clone() }, now)
    }

    /// Takes what is due.
    pub(super) fn lease(&self, wanted: &Wanted, now: &Now) -> Statement {
        let lapsed = format!("{LAPSED}\n");
        bind(&self.lease, wanted, now).bind(now.lease + wanted.lease).bind(now.wall).bind(lapsed)
    }
}

fn bind(text: &Arc<str>, wanted: &Wanted, now: &Now) -> Statement {
    prepared(text)
        .bind(now.boot.clone())
        .bind(now.lease)
        .bind(wanted.limit)
        .bind(wanted.endpoints.clone())
        .bind(wanted.except_endpoints.clone())
        .bind(wanted.except_types.clone())
}

/// Who is due: of those that wait, this boot's whose time has come, and all of another's, whose clock is gone; and leases that
/// have lapsed. Each from an index that is in the order of time already, however many there are behind.
fn due(table: &Table) -> String {
    let (waiting, leased) = (schema::waiting_index(table), schema::leased_index(table));
    let (suits, waits) = (suits(table), "e.state = 'accepted' AND e.behind IS NULL");
    let mut text = String::from("SELECT id, since, arrival, parcel FROM (");
    for (place, (index, since, due, order)) in [
        (&waiting, "e.due_at", format!("{waits} AND e.boot = ?1 AND e.due_at <= ?2"), "e.due_at, e.arrival"),
        (&waiting, "-1", format!("{waits} AND e.boot < ?1"), "e.boot, e.due_at, e.arrival"),
        (&waiting, "-1", format!("{waits} AND e.boot > ?1"), "e.boot, e.due_at, e.arrival"),
        (
            &leased,
            "iif(e.boot = ?1, coalesce(e.lease_until, -1), -1)",
            "e.state = 'running' AND e.arrival IS NOT NULL \
             AND (e.boot <> ?1 OR e.lease_until IS NULL OR e.lease_until <= ?2)"
                .to_owned(),
            "e.lease_until",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let union = if place == 0 { "" } else { " UNION ALL " };
        let _ = write!(
            text,
            "{union}SELECT * FROM (SELECT e.rowid AS id, {since} AS since, e.arrival AS arrival, \
             e.parcel AS parcel FROM {table} AS e INDEXED BY {index} WHERE {due} AND {suits} ORDER BY {order} LIMIT ?3)"
        );
    }
    text.push_str(") ORDER BY since, arrival LIMIT ?3");
    text
}

/// The first of those that are due, as many as one lease may hold. The length of a blob is known without reading it.
fn taken(due: &str, table: &Table) -> String {
    let parcels = schema::parcels(table);
    format!(
        "SELECT id FROM (SELECT id, size, sum(size) OVER (ORDER BY since, arrival ROWS UNBOUNDED PRECEDING) AS all_of_them \
         FROM (SELECT id, since, arrival, \
         coalesce((SELECT length(p.head) + length(p.body) FROM {parcels} AS p WHERE p.id = parcel), 0) AS size FROM ({due}))) \
         WHERE all_of_them <= {LARGEST_LEASE} OR all_of_them = size"
    )
}

/// Of the kinds that are asked for, and first in its line. Arrivals only ever grow, so nobody gets in front of the first: if
/// one of a line runs, it is that one. Most that are not first are marked, and not even looked at.
fn suits(table: &Table) -> String {
    let names = |parameter: &str| format!("(SELECT value FROM json_each({parameter}))");
    format!(
        "(?4 IS NULL OR e.endpoint IN {only}) AND (?5 IS NULL OR e.endpoint NOT IN {no_endpoint}) \
         AND (?6 IS NULL OR e.event_type IS NULL OR e.event_type NOT IN {no_type}) \
         AND (e.order_key IS NULL OR NOT {is_behind})",
        only = names("?4"),
        no_endpoint = names("?5"),
        no_type = names("?6"),
        is_behind = schema::is_behind(table),
    )
}

/// The names as a JSON array; `None` if there are none, and therefore no condition.
fn json(names: &[Box<str>]) -> Option<Arc<str>> {
    let mut text = String::new();
    for name in names {
        text.push_str(if text.is_empty() { "[\"" } else { "\",\"" });
        for c in name.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                '\0'..' ' => _ = write!(text, "\\u{:04x}", u32::from(c)),
                _ => text.push(c),
            }
        }
    }
    (!text.is_empty()).then(|| format!("{text}\"]").into())
}

/// The events that were leased, those that have been due the longest first.
pub(super) fn read(rows: &[SqliteRow]) -> Result<Vec<Leased>, sqlx::Error> {
    let mut leased = rows.iter().filter_map(|row| event(row).transpose()).collect::<Result<Vec<_>, _>>()?;
    leased.sort_by_key(|(place, _)| *place);
    Ok(leased.into_iter().map(|(_, event)| event).collect())
}

type Place = (i64, i64);

/// Nothing of a row whose key this crate did not write: nobody could be told of it.
fn event(row: &SqliteRow) -> Result<Option<(Place, Leased)>, sqlx::Error> {
    let token = row.try_get::<&[u8], _>("token")?.try_into().ok().map(ClaimToken::from_bytes);
    let (Some(key), Some(token)) = (EventKey::parse(row.try_get("key")?), token) else { return Ok(None) };
    let mut leased = Leased::new(key, token, parcel(row)?);
    leased.attempt = row.try_get::<i64, _>("attempts")?.try_into().unwrap_or(u32::MAX);
    leased.event_type = row.try_get::<Option<&str>, _>("event_type")?.map(Into::into);
    leased.fingerprint = Fingerprint::from_u64(row.try_get::<i64, _>("fingerprint")?.cast_unsigned());
    leased.superseded = row.try_get("superseded")?;
    Ok(Some(((row.try_get("due_at")?, row.try_get("arrival")?), leased)))
}

/// Empty, if somebody has deleted it: a worker makes that a dead letter.
pub(super) fn parcel(row: &SqliteRow) -> Result<Parcel, sqlx::Error> {
    let bytes = |column| row.try_get::<Option<Vec<u8>>, _>(column).map(|bytes| Bytes::from(bytes.unwrap_or_default()));
    let parcel = Parcel::new(bytes("head")?, bytes("body")?, from_unix_millis(row.try_get("received_at")?));
    let Some(key) = row.try_get::<Option<&str>, _>("order_key")? else { return Ok(parcel) };
    let mut order = Order::of(key);
    order.sequence = row.try_get("sequence")?;
    Ok(parcel.ordered(order))
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, SqliteConnection};

    use super::*;

    async fn plan(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
        let plan = sqlx::query(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
        plan.fetch_all(connection).await.expect("a plan").iter().map(|step| step.get("detail")).collect()
    }

    /// However many wait, and however many of them for each other.
    #[tokio::test]
    async fn next_events_are_at_the_beginning_of_an_index() {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("a database");
        let table = Table::default();
        sqlx::raw_sql(sqlx::AssertSqlSafe(schema::schema(&table))).execute(&mut connection).await.expect("tables");
        let due = plan(&mut connection, &due(&table)).await;
        for expected in [
            "SEARCH e USING INDEX webhook_events_waiting (boot=? AND due_at<?)",
            "SEARCH e USING INDEX webhook_events_waiting (boot<?)",
            "SEARCH e USING INDEX webhook_events_waiting (boot>?)",
            "SEARCH f USING COVERING INDEX webhook_events_lines (order_key=? AND arrival<?)",
        ] {
            assert!(due.iter().any(|step| step == expected), "{expected}: {due:#?}");
        }
        assert_eq!(
            due.iter().filter(|step| step.contains("TEMP B-TREE")).count(),
            1,
            "of the few in the end: {due:#?}"
        );
        let next = "SELECT rowid FROM webhook_events WHERE order_key = ?1 AND state IN ('accepted', 'running') \
                    ORDER BY arrival LIMIT 1";
        let next = plan(&mut connection, next).await;
        assert_eq!(next, ["SEARCH webhook_events USING COVERING INDEX webhook_events_lines (order_key=?)"]);
    }

    #[test]
    fn names_are_json() {
        assert_eq!(json(&[]), None);
        let names = ["/a".into(), "".into(), "\"quoted\\\" \n é".into()];
        assert_eq!(json(&names).as_deref(), Some(r#"["/a","","\"quoted\\\" \u000a é"]"#));
    }
}
