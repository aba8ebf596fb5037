//! Which events a lease takes: those that have been due the longest, of kinds that have room.
//!
//! A lease looks at the first of the events that are due, whatever their kind. That is enough, unless many of those are of kinds that it does
//! not want. It then goes from kind to kind, by an index that begins with endpoint and type, and merges what each has to offer: what it
//! costs depends on the number of kinds, and not on how many events of other kinds are in front.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{Executor, Row as _};

use super::fault::Fault;
use super::leasing::{Wanted, json};
use super::pick_texts::PickTexts;
use super::time::Now;
use crate::store::queue::KindRooms;

/// How many events beyond its limit a lease looks at before it goes from kind to kind.
const PASSED_OVER: usize = 128;

/// When an event became due, and its arrival.
type Place = (i64, i64);

/// An event that can be leased.
struct Candidate {
    /// The row's number.
    id: i64,
    place: Place,
    endpoint: String,
    event_type: Option<String>,
}

/// Candidates in the order of their places.
enum Source {
    /// Of one kind, of which only the first one's place is known so far.
    Unread(Box<Kind>),
    /// Of one kind.
    OfKind(VecDeque<Candidate>),
    Mixed(VecDeque<Candidate>),
}

struct Kind {
    endpoint: String,
    event_type: Option<String>,
    /// The type as the index has it.
    in_index: String,
    place: Place,
}

/// The numbers of the rows that `wanted` gets, those that have been due the longest first.
pub(super) async fn pick(
    connection: &mut SqliteConnection,
    texts: &PickTexts,
    wanted: &Wanted,
    now: &Now,
) -> Result<Vec<i64>, Fault> {
    let beyond = if wanted.is_of_any_kind() { 0 } else { PASSED_OVER };
    let looked_at = wanted.limit.saturating_add(beyond);
    let first = connection.fetch_all(texts.first(looked_at, now)).await?;
    let are_all = first.len() < looked_at;
    let (request, mut picked) = (wanted.request(), Vec::new());
    let mut rooms = KindRooms::new(&request);
    for candidate in read(&first)? {
        if picked.len() < wanted.limit && rooms.enter(&candidate.endpoint, candidate.event_type.as_deref()) {
            picked.push(candidate.id);
        }
    }
    if are_all || picked.len() == wanted.limit {
        return Ok(picked);
    }
    pick_by_kind(connection, texts, wanted, now).await
}

/// The same, however many events of other kinds are in front.
async fn pick_by_kind(
    connection: &mut SqliteConnection,
    texts: &PickTexts,
    wanted: &Wanted,
    now: &Now,
) -> Result<Vec<i64>, Fault> {
    let request = wanted.request();
    let mut rooms = KindRooms::new(&request);
    let mut sources = vec![Source::Mixed(read(&connection.fetch_all(texts.lapsed(wanted.limit, now)).await?)?)];
    for kind in kinds(connection, texts, wanted, now).await? {
        if rooms.has_room(&kind.endpoint, kind.event_type.as_deref()) {
            sources.push(Source::Unread(Box::new(kind)));
        }
    }
    let mut next: BinaryHeap<_> =
        sources.iter().enumerate().filter_map(|(n, source)| Some(Reverse((source.place()?, n)))).collect();
    let mut picked = Vec::new();
    while picked.len() < wanted.limit
        && let Some(Reverse((_, n))) = next.pop()
    {
        if let Source::Unread(kind) = &sources[n] {
            if !rooms.has_room(&kind.endpoint, kind.event_type.as_deref()) {
                continue;
            }
            let rows = texts.of_kind(&kind.endpoint, &kind.in_index, wanted.limit - picked.len(), now);
            sources[n] = Source::OfKind(read(&connection.fetch_all(rows).await?)?);
        }
        let source = &mut sources[n];
        let Some(candidate) = source.take() else { continue };
        match rooms.enter(&candidate.endpoint, candidate.event_type.as_deref()) {
            true => picked.push(candidate.id),
            // There is no room for the others of this kind either.
            false if matches!(source, Source::OfKind(_)) => continue,
            false => {}
        }
        next.extend(source.place().map(|place| Reverse((place, n))));
    }
    Ok(picked)
}

/// Every kind of which an event is due, at the endpoints that are asked for and have room.
async fn kinds(
    connection: &mut SqliteConnection,
    texts: &PickTexts,
    wanted: &Wanted,
    now: &Now,
) -> Result<Vec<Kind>, Fault> {
    let mut endpoints = wanted.endpoints.to_vec();
    if endpoints.is_empty() {
        let rows = connection.fetch_all(texts.endpoints()).await?;
        endpoints = rows.iter().filter_map(|row| row.try_get::<String, _>(0).ok()).map(Into::into).collect();
    }
    endpoints.retain(|endpoint| wanted.per_endpoint.as_ref().is_none_or(|limits| limits.of(endpoint) > 0));
    let rows = connection.fetch_all(texts.kinds(json(&endpoints), now)).await?;
    let kind = |row: &SqliteRow| {
        let in_index: String = row.try_get("type_in_kinds")?;
        Ok::<_, sqlx::Error>(Kind {
            endpoint: row.try_get("endpoint")?,
            event_type: in_index.strip_prefix('=').map(Into::into),
            in_index,
            place: (row.try_get("since")?, row.try_get("arrival")?),
        })
    };
    // A name that is no text is of a row that nobody could run.
    Ok(rows.iter().filter_map(|row| kind(row).ok()).collect())
}

/// What is no text counts as no type and no endpoint: the row is found unreadable when it is leased.
fn read(rows: &[SqliteRow]) -> Result<VecDeque<Candidate>, sqlx::Error> {
    let candidate = |row: &SqliteRow| {
        Ok(Candidate {
            id: row.try_get("id")?,
            place: (row.try_get("since")?, row.try_get("arrival")?),
            endpoint: row.try_get("endpoint").unwrap_or_default(),
            event_type: row.try_get("event_type").unwrap_or_default(),
        })
    };
    rows.iter().map(candidate).collect()
}

impl Source {
    /// Of its next candidate.
    fn place(&self) -> Option<Place> {
        match self {
            Self::Unread(kind) => Some(kind.place),
            Self::OfKind(rows) | Self::Mixed(rows) => rows.front().map(|candidate| candidate.place),
        }
    }

    fn take(&mut self) -> Option<Candidate> {
        match self {
            Self::Unread(_) => None,
            Self::OfKind(rows) | Self::Mixed(rows) => rows.pop_front(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use sqlx::{AssertSqlSafe, Connection as _};

    use super::super::schema;
    use super::super::table::Table;
    use super::*;
    use crate::store::queue::{KindLimits, LeaseRequest};

    /// So many events of `/b` that have been due for longer than three of `/a`.
    const BACKLOG: &str = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1 + 3) \
        INSERT INTO webhook_events (key, event_type, state, token, boot, received_at, attempts, fingerprint, expires_at, version, \
        arrival, endpoint, due_at) SELECT n, iif(n > ?1, 'quick', 'slow'), 'accepted', x'', 'boot', 0, 0, 0, 0, 1, \
        n, iif(n > ?1, '/a', '/b'), n FROM n";

    /// What is picked behind a backlog of another kind, and how many steps that takes SQLite's virtual machine.
    async fn picked(backlog: i64, request: &LeaseRequest<'_>) -> (Vec<i64>, u64) {
        let mut connection = SqliteConnection::connect("sqlite::memory:").await.expect("a database");
        let table = Table::default();
        sqlx::raw_sql(AssertSqlSafe(schema::schema(&table))).execute(&mut connection).await.expect("tables");
        sqlx::query(BACKLOG).bind(backlog).execute(&mut connection).await.expect("a backlog");
        let steps = Arc::new(AtomicU64::new(0));
        let counter = steps.clone();
        connection.lock_handle().await.expect("a handle").set_progress_handler(1, move || {
            counter.fetch_add(1, Ordering::Relaxed);
            true
        });
        let now = Now { wall: 0, lease: i64::MAX, boot: "boot".into() };
        let picked = pick(&mut connection, &PickTexts::new(&table), &Wanted::new(request), &now).await;
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
}
