//! Picks the events that a lease takes: those that have been due the longest, of kinds that have room.
//!
//! A lease looks at the first of the events that are due, whatever their kind. That is enough, unless many of those are
//! of kinds that the lease does not want. It then goes from kind to kind, by an index that begins with endpoint and
//! type, and merges the events of all kinds: its cost depends on the number of kinds, and not on how many events of
//! other kinds are in front.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Executor, Row as _};

use super::fault::Fault;
use super::statements::{Statement, Statements, statement};
use super::time::Now;
use crate::store::queue::{LeaseBudget, LeaseRequest};

/// How many events beyond its limit a lease looks at before it goes from kind to kind.
const PASSED_OVER: usize = 128;

/// When an event became due, and its arrival.
type Position = (i64, i64);

/// An event that can be leased.
struct Candidate {
    /// The row's number.
    id: i64,
    position: Position,
    endpoint: String,
    event_type: Option<String>,
}

/// Candidates in the order of their positions.
enum Source {
    /// Candidates of one kind, of which only the first one's position is known so far.
    Unread(Box<Kind>),
    OfKind(VecDeque<Candidate>),
    OfAnyKind(VecDeque<Candidate>),
}

struct Kind {
    endpoint: String,
    event_type: Option<String>,
    /// The type as the index has it.
    indexed_type: String,
    position: Position,
}

/// Returns the numbers of the rows that `request` gets, those that have been due the longest first.
pub(super) async fn pick(
    connection: &mut SqliteConnection,
    statements: &Statements,
    request: &LeaseRequest<'_>,
    now: &Now,
) -> Result<Vec<i64>, Fault> {
    let looked_at = request.limit.saturating_add(if request.is_of_any_kind() { 0 } else { PASSED_OVER });
    let first = connection.fetch_all(due(&statements.due, looked_at, now)).await?;
    let are_all = first.len() < looked_at;
    let (mut budget, mut picked) = (LeaseBudget::new(request), Vec::new());
    for candidate in read(&first)? {
        if picked.len() < request.limit && budget.try_take(&candidate.endpoint, candidate.event_type.as_deref()) {
            picked.push(candidate.id);
        }
    }
    if are_all || picked.len() == request.limit {
        return Ok(picked);
    }
    pick_by_kind(connection, statements, request, now).await
}

/// Picks kind by kind, however many events of other kinds are in front.
async fn pick_by_kind(
    connection: &mut SqliteConnection,
    statements: &Statements,
    request: &LeaseRequest<'_>,
    now: &Now,
) -> Result<Vec<i64>, Fault> {
    let mut budget = LeaseBudget::new(request);
    let lapsed = connection.fetch_all(due(&statements.lapsed, request.limit, now)).await?;
    let mut sources = vec![Source::OfAnyKind(read(&lapsed)?)];
    for kind in kinds(connection, statements, request, now).await? {
        if budget.has_room(&kind.endpoint, kind.event_type.as_deref()) {
            sources.push(Source::Unread(Box::new(kind)));
        }
    }
    let mut next: BinaryHeap<_> =
        sources.iter().enumerate().filter_map(|(n, source)| Some(Reverse((source.position()?, n)))).collect();
    let mut picked = Vec::new();
    while picked.len() < request.limit
        && let Some(Reverse((_, n))) = next.pop()
    {
        if let Source::Unread(kind) = &sources[n] {
            if !budget.has_room(&kind.endpoint, kind.event_type.as_deref()) {
                continue;
            }
            let rows = due(&statements.of_kind, request.limit - picked.len(), now);
            let rows = rows.bind(kind.endpoint.clone()).bind(kind.indexed_type.clone());
            sources[n] = Source::OfKind(read(&connection.fetch_all(rows).await?)?);
        }
        let source = &mut sources[n];
        let Some(candidate) = source.take() else { continue };
        match budget.try_take(&candidate.endpoint, candidate.event_type.as_deref()) {
            true => picked.push(candidate.id),
            // The kind has no room for the others either.
            false if matches!(source, Source::OfKind(_)) => continue,
            false => {}
        }
        next.extend(source.position().map(|position| Reverse((position, n))));
    }
    Ok(picked)
}

/// Returns every kind of which an event is due, at the requested endpoints that have room.
async fn kinds(
    connection: &mut SqliteConnection,
    statements: &Statements,
    request: &LeaseRequest<'_>,
    now: &Now,
) -> Result<Vec<Kind>, Fault> {
    let mut endpoints = request.endpoints.to_vec();
    if endpoints.is_empty() {
        let rows = connection.fetch_all(statement(&statements.endpoints)).await?;
        endpoints = rows.iter().filter_map(|row| row.try_get::<String, _>(0).ok()).map(Into::into).collect();
    }
    endpoints.retain(|endpoint| request.per_endpoint.is_none_or(|limits| limits.of(endpoint) > 0));
    let kinds = statement(&statements.kinds).bind(now.boot_id.clone()).bind(now.since_boot).bind(json(&endpoints));
    let rows = connection.fetch_all(kinds).await?;
    let kind = |row: &SqliteRow| {
        let indexed_type: String = row.try_get("indexed_type")?;
        Ok::<_, sqlx::Error>(Kind {
            endpoint: row.try_get("endpoint")?,
            event_type: indexed_type.strip_prefix('=').map(Into::into),
            indexed_type,
            position: (row.try_get("since")?, row.try_get("arrival")?),
        })
    };
    // A row whose names are not text could not be run.
    Ok(rows.iter().filter_map(|row| kind(row).ok()).collect())
}

/// Reads candidates. A type or an endpoint that is not text counts as missing: the row is found unreadable when it is
/// leased.
fn read(rows: &[SqliteRow]) -> Result<VecDeque<Candidate>, sqlx::Error> {
    let candidate = |row: &SqliteRow| {
        Ok(Candidate {
            id: row.try_get("id")?,
            position: (row.try_get("since")?, row.try_get("arrival")?),
            endpoint: row.try_get("endpoint").unwrap_or_default(),
            event_type: row.try_get("event_type").unwrap_or_default(),
        })
    };
    rows.iter().map(candidate).collect()
}

impl Source {
    /// The position of the next candidate.
    fn position(&self) -> Option<Position> {
        match self {
            Self::Unread(kind) => Some(kind.position),
            Self::OfKind(rows) | Self::OfAnyKind(rows) => rows.front().map(|candidate| candidate.position),
        }
    }

    fn take(&mut self) -> Option<Candidate> {
        match self {
            Self::Unread(_) => None,
            Self::OfKind(rows) | Self::OfAnyKind(rows) => rows.pop_front(),
        }
    }
}

/// A statement that begins with the parameters boot, boot clock and limit.
fn due(text: &Arc<str>, limit: usize, now: &Now) -> Statement {
    statement(text).bind(now.boot_id.clone()).bind(now.since_boot).bind(i64::try_from(limit).unwrap_or(i64::MAX))
}

/// Writes the names as a JSON array.
fn json(names: &[Box<str>]) -> String {
    let mut text = String::from("[");
    for name in names {
        text.push_str(if text.len() == 1 { "\"" } else { ",\"" });
        for c in name.chars() {
            match c {
                '"' | '\\' => text.extend(['\\', c]),
                '\0'..' ' => _ = write!(text, "\\u{:04x}", u32::from(c)),
                _ => text.push(c),
            }
        }
        text.push('"');
    }
    text.push(']');
    text
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use sqlx::{AssertSqlSafe, Connection as _};

    use super::super::table::Table;
    use super::super::time::BodyRetention;
    use super::*;
    use crate::store::queue::{KindLimits, LeaseRequest};

    fn statements() -> Statements {
        Statements::new(&Table::default(), BodyRetention::default())
    }

    async fn database() -> SqliteConnection {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("a database");
        let schema = AssertSqlSafe(statements().schema);
        sqlx::raw_sql(schema).execute(&mut connection).await.expect("tables");
        connection
    }

    /// So many events of `/b` that have been due for longer than three of `/a`.
    const BACKLOG: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1 + 3) \
        INSERT INTO webhook_events (key, event_type, state, token, boot, received_at, attempts, fingerprint, expires_at, version, \
        arrival, endpoint, due_at) SELECT n, iif(n > ?1, 'quick', 'slow'), 'accepted', x'', 'boot', 0, 0, 0, 0, 1, \
        n, iif(n > ?1, '/a', '/b'), n FROM n";

    /// Picks behind a backlog of another kind. Returns the picked events, and how many steps SQLite's virtual machine
    /// took.
    async fn picked(backlog: i64, request: &LeaseRequest<'_>) -> (Vec<i64>, u64) {
        let mut connection = database().await;
        sqlx::query(BACKLOG).bind(backlog).execute(&mut connection).await.expect("a backlog");
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        connection.lock_handle().await.expect("a handle").set_progress_handler(1, move || {
            counter.fetch_add(1, Ordering::Relaxed);
            true
        });
        let now = Now { wall: 0, since_boot: i64::MAX, boot_id: "boot".into() };
        let picked = pick(&mut connection, &statements(), request, &now).await;
        let numbers = picked.expect("an answer").into_iter().map(|id| id - backlog).collect();
        (numbers, steps.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn backlog_of_another_kind_costs_nothing() {
        let (only_a, no_slow) = (["/a".into()], KindLimits::new(9).with("slow", 0));
        let no_b = KindLimits::new(9).with("/b", 0);
        let requests = [0, 1, 2].map(|n| {
            let mut request = LeaseRequest::new(2, Duration::from_secs(30));
            match n {
                0 => request.endpoints = &only_a,
                1 => request.per_type = Some(&no_slow),
                _ => request.per_endpoint = Some(&no_b),
            }
            request
        });
        for request in requests {
            let (few, few_steps) = picked(1_000, &request).await;
            let (many, many_steps) = picked(100_000, &request).await;
            assert_eq!((few, many), (vec![1, 2], vec![1, 2]));
            assert!(many_steps < few_steps * 2, "{few_steps} steps, and {many_steps}: {request:?}");
        }
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
        let (mut connection, statements) = (database().await, statements());
        let first = plan(&mut connection, &statements.due).await;
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
        let (mut connection, statements) = (database().await, statements());
        let endpoints = plan(&mut connection, &statements.endpoints).await;
        has_all(&endpoints, &["INDEX webhook_events_kinds (endpoint>?)"]);
        assert_eq!(sorts(&endpoints), 0, "{endpoints:#?}");
        let kinds = plan(&mut connection, &statements.kinds).await;
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
        let of_kind = plan(&mut connection, &statements.of_kind).await;
        has_all(&of_kind, &[&format!("{by_type}=? AND boot=? AND due_at<?)")]);
        assert_eq!(sorts(&of_kind), 1, "of the few in the end: {of_kind:#?}");
    }

    #[test]
    fn names_are_json() {
        assert_eq!(json(&[]), "[]");
        let names = ["/a".into(), "".into(), "\"quoted\\\" \n é".into()];
        assert_eq!(json(&names), r#"["/a","","\"quoted\\\" \u000a é"]"#);
    }
}
