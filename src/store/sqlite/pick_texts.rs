//! The statements that find out what is due. Each goes by an index that is in the order of time already.

use std::fmt::Write as _;
use std::sync::Arc;

use super::schema::{self, TYPE_IN_KINDS};
use super::statements::{Statement, prepared};
use super::table::Table;
use super::time::Now;

/// The texts for one table.
pub(super) struct PickTexts {
    first: Arc<str>,
    lapsed: Arc<str>,
    endpoints: Arc<str>,
    kinds: Arc<str>,
    of_kind: Arc<str>,
}

impl PickTexts {
    pub(super) fn new(table: &Table) -> Self {
        Self {
            first: first(table).into(),
            lapsed: lapsed_of_each_kind(table).into(),
            endpoints: endpoints(table).into(),
            kinds: kinds(table).into(),
            of_kind: of_kind(table).into(),
        }
    }

    /// The first of what is due, of whatever kind.
    pub(super) fn first(&self, limit: usize, now: &Now) -> Statement {
        bind(&self.first, limit, now)
    }

    /// Events whose leases have lapsed, up to so many of each kind.
    pub(super) fn lapsed(&self, limit: usize, now: &Now) -> Statement {
        bind(&self.lapsed, limit, now)
    }

    /// The endpoints that have waiting events.
    pub(super) fn endpoints(&self) -> Statement {
        prepared(&self.endpoints)
    }

    /// The types that have events due at these endpoints, a JSON array, and the place of the first of each.
    pub(super) fn kinds(&self, endpoints: String, now: &Now) -> Statement {
        prepared(&self.kinds).bind(now.boot.clone()).bind(now.lease).bind(endpoints)
    }

    /// The first of what is due of one kind.
    pub(super) fn of_kind(&self, endpoint: &str, type_in_kinds: &str, limit: usize, now: &Now) -> Statement {
        bind(&self.of_kind, limit, now).bind(endpoint.to_owned()).bind(type_in_kinds.to_owned())
    }
}

fn bind(text: &Arc<str>, limit: usize, now: &Now) -> Statement {
    prepared(text).bind(now.boot.clone()).bind(now.lease).bind(i64::try_from(limit).unwrap_or(i64::MAX))
}

const CANDIDATE: &str = "e.rowid AS id, e.arrival AS arrival, e.endpoint AS endpoint, e.event_type AS event_type";

const WAITS: &str = "e.state = 'accepted' AND e.behind IS NULL AND e.arrival IS NOT NULL";

/// An event's due time, in which boot that is, and the order of those: of this boot whose time has come, and all of another's,
/// whose clock is gone.
const WAITING: [(&str, &str, &str); 3] = [
    ("e.due_at", "e.boot = ?1 AND e.due_at <= ?2", "e.due_at, e.arrival"),
    ("-1", "e.boot < ?1", "e.boot, e.due_at, e.arrival"),
    ("-1", "e.boot > ?1", "e.boot, e.due_at, e.arrival"),
];

const LAPSED_SINCE: &str = "iif(e.boot = ?1, coalesce(e.lease_until, -1), -1)";

const HAS_LAPSED: &str = "e.state = 'running' AND e.arrival IS NOT NULL \
    AND (e.boot <> ?1 OR e.lease_until IS NULL OR e.lease_until <= ?2)";

/// The condition for an event that is first in its line. Arrivals only ever grow, so nobody gets in front of the first: if one of a line
/// runs, it is that one. Most that are not first are marked, and not even looked at.
fn is_first(table: &Table) -> String {
    format!("(e.order_key IS NULL OR NOT {})", schema::is_behind(table))
}

fn first(table: &Table) -> String {
    let (waiting, leased, is_first) = (schema::waiting_index(table), schema::leased_index(table), is_first(table));
    let mut text = String::from("SELECT * FROM (");
    for (since, due, order) in WAITING {
        let _ = write!(
            text,
            "SELECT * FROM (SELECT {CANDIDATE}, {since} AS since FROM {table} AS e INDEXED BY {waiting} \
             WHERE {WAITS} AND {due} AND {is_first} ORDER BY {order} LIMIT ?3) UNION ALL "
        );
    }
    let _ = write!(
        text,
        "SELECT * FROM (SELECT {CANDIDATE}, {LAPSED_SINCE} AS since FROM {table} AS e INDEXED BY {leased} \
         WHERE {HAS_LAPSED} AND {is_first} ORDER BY e.lease_until LIMIT ?3)) ORDER BY since, arrival LIMIT ?3"
    );
    text
}

/// All of them are looked at: they are no more than ran at once.
fn lapsed_of_each_kind(table: &Table) -> String {
    format!(
        "SELECT * FROM (SELECT {CANDIDATE}, {LAPSED_SINCE} AS since, \
         row_number() OVER (PARTITION BY e.endpoint, e.event_type ORDER BY {LAPSED_SINCE}, e.arrival) AS number \
         FROM {table} AS e INDEXED BY {leased} WHERE {HAS_LAPSED} AND {is_first}) WHERE number <= ?3 ORDER BY since, arrival",
        leased = schema::leased_index(table),
        is_first = is_first(table),
    )
}

/// From one to the next by the index, past all events in between.
fn endpoints(table: &Table) -> String {
    let next = |after: &str| {
        format!(
            "SELECT e.endpoint FROM {table} AS e INDEXED BY {index} WHERE {WAITS} AND e.endpoint {after} ORDER BY e.endpoint LIMIT 1",
            index = schema::kinds_index(table)
        )
    };
    format!(
        "WITH RECURSIVE found (endpoint) AS (SELECT ({}) UNION ALL SELECT ({}) FROM found WHERE endpoint IS NOT NULL) \
         SELECT endpoint FROM found WHERE endpoint IS NOT NULL",
        next("IS NOT NULL"),
        next("> found.endpoint"),
    )
}

fn kinds(table: &Table) -> String {
    let index = schema::kinds_index(table);
    let next = |condition: &str| {
        format!(
            "SELECT {TYPE_IN_KINDS} FROM {table} AS e INDEXED BY {index} WHERE {WAITS} AND {condition} \
             ORDER BY {TYPE_IN_KINDS} LIMIT 1"
        )
    };
    let head = WAITING.map(|(_, due, order)| {
        format!(
            "(SELECT e.rowid FROM {table} AS e INDEXED BY {index} WHERE {WAITS} AND e.endpoint = found.endpoint \
             AND {TYPE_IN_KINDS} = found.type AND {due} AND {is_first} ORDER BY {order} LIMIT 1)",
            is_first = is_first(table),
        )
    });
    format!(
        "WITH RECURSIVE found (endpoint, type) AS (SELECT value, ({first}) FROM json_each(?3) UNION ALL \
         SELECT endpoint, ({next}) FROM found WHERE type IS NOT NULL), \
         heads AS MATERIALIZED (SELECT endpoint, type, coalesce({other_boots}, {this_boot}) AS id FROM found WHERE type IS NOT NULL) \
         SELECT heads.endpoint AS endpoint, heads.type AS type_in_kinds, iif(e.boot = ?1, e.due_at, -1) AS since, e.arrival AS arrival \
         FROM heads CROSS JOIN {table} AS e ON e.rowid = heads.id",
        first = next("e.endpoint = json_each.value"),
        next = next(&format!("e.endpoint = found.endpoint AND {TYPE_IN_KINDS} > found.type")),
        other_boots = head[1..].join(", "),
        this_boot = head[0],
    )
}

fn of_kind(table: &Table) -> String {
    let (index, is_first) = (schema::kinds_index(table), is_first(table));
    let branches = WAITING.map(|(since, due, order)| {
        format!(
            "SELECT * FROM (SELECT {CANDIDATE}, {since} AS since FROM {table} AS e INDEXED BY {index} WHERE {WAITS} \
             AND e.endpoint = ?4 AND {TYPE_IN_KINDS} = ?5 AND {due} AND {is_first} ORDER BY {order} LIMIT ?3)"
        )
    });
    format!("SELECT * FROM ({}) ORDER BY since, arrival LIMIT ?3", branches.join(" UNION ALL "))
}

#[cfg(test)]
mod tests {
    use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

    use super::*;

    async fn database() -> SqliteConnection {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("a database");
        let tables = schema::schema(&Table::default());
        sqlx::raw_sql(AssertSqlSafe(tables)).execute(&mut connection).await.expect("tables");
        connection
    }

    async fn plan(connection: &mut SqliteConnection, statement: &str) -> Vec<String> {
        let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}")));
        plan.fetch_all(connection).await.expect("a plan").iter().map(|step| step.get("detail")).collect()
    }

    fn has_all(plan: &[String], expected: &[&str]) {
        for expected in expected {
            assert!(plan.iter().any(|step| step.contains(expected)), "{expected}: {plan:#?}");
        }
        assert!(!plan.iter().any(|step| step.starts_with("SCAN e")), "{plan:#?}");
    }

    fn sorts(plan: &[String]) -> usize {
        plan.iter().filter(|step| step.contains("TEMP B-TREE")).count()
    }

    /// However many wait, and however many of them for each other.
    #[tokio::test]
    async fn next_events_are_at_the_beginning_of_an_index() {
        let (mut connection, table) = (database().await, Table::default());
        let first = plan(&mut connection, &first(&table)).await;
        for expected in [
            "SEARCH e USING INDEX webhook_events_waiting (boot=? AND due_at<?)",
            "SEARCH e USING INDEX webhook_events_waiting (boot<?)",
            "SEARCH e USING INDEX webhook_events_waiting (boot>?)",
            "SEARCH f USING COVERING INDEX webhook_events_lines (order_key=? AND arrival<?)",
        ] {
            assert!(first.iter().any(|step| step == expected), "{expected}: {first:#?}");
        }
        assert_eq!(sorts(&first), 1, "of the few in the end: {first:#?}");
        let next = "SELECT rowid FROM webhook_events WHERE order_key = ?1 AND state IN ('accepted', 'running') \
                    ORDER BY arrival LIMIT 1";
        let next = plan(&mut connection, next).await;
        assert_eq!(next, ["SEARCH webhook_events USING COVERING INDEX webhook_events_lines (order_key=?)"]);
    }

    /// However many of other kinds are in front.
    #[tokio::test]
    async fn next_events_of_a_kind_are_at_the_beginning_of_their_part_of_an_index() {
        let (mut connection, table) = (database().await, Table::default());
        let endpoints = plan(&mut connection, &endpoints(&table)).await;
        has_all(&endpoints, &["INDEX webhook_events_kinds (endpoint>?)"]);
        assert_eq!(sorts(&endpoints), 0, "{endpoints:#?}");
        let kinds = plan(&mut connection, &kinds(&table)).await;
        let by_type = "INDEX webhook_events_kinds (endpoint=? AND <expr>";
        has_all(
            &kinds,
            &[
                &format!("{by_type}>?)"),
                &format!("{by_type}=? AND boot=? AND due_at<?)"),
                &format!("{by_type}=? AND boot<?)"),
                &format!("{by_type}=? AND boot>?)"),
                "SEARCH e USING INTEGER PRIMARY KEY (rowid=?)",
            ],
        );
        assert_eq!(sorts(&kinds), 0, "{kinds:#?}");
        let of_kind = plan(&mut connection, &of_kind(&table)).await;
        has_all(&of_kind, &[&format!("{by_type}=? AND boot=? AND due_at<?)")]);
        assert_eq!(sorts(&of_kind), 1, "of the few in the end: {of_kind:#?}");
    }
}
