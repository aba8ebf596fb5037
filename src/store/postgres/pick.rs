//! Picks the events that a lease takes if its worker does not have room for all kinds.
//!
//! A lease looks at the first due events, whatever their kind. If few of them can be leased, it goes from kind to kind
//! by another index: events that cannot be leased then cost nothing, however many they are.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use super::connection::DedicatedConnection;
use super::fault::Fault;
use super::statements::{Statement, Statements, statement};
use super::values::{bigint, index};
use crate::lock::lock;
use crate::store::queue::{KindLimits, LeaseBudget, LeaseRequest};

/// How many of the first due events a lease looks at, in addition to twice as many as it may take.
const PASSED_OVER: usize = 64;

/// About how many kinds one statement looks at, of all endpoints together.
const KINDS: usize = 1_000;

/// The fewest kinds per endpoint that one statement looks at, however many endpoints there are.
const LEAST_KINDS: usize = 16;

/// How often a lease looks at further kinds, if it could take none of the kinds before.
const ROUNDS: usize = 4;

/// The part of the index of due events that one lease scans.
pub(super) struct Scan<'a> {
    pub(super) connection: &'a DedicatedConnection,
    pub(super) start: Option<i64>,
    pub(super) until: Instant,
}

pub(super) struct Picker {
    candidates_sql: Arc<str>,
    kinds_sql: Arc<str>,
    of_kinds_sql: Arc<str>,
    /// The last kind that was looked at, per endpoint, or of all of them under `None`. The next lease continues behind
    /// it. Empty where one statement sees all kinds.
    resume_after: Mutex<HashMap<Option<Box<str>>, KindHash>>,
}

/// An event that can be leased.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    due: i64,
    arrival: i64,
    key: String,
    endpoint: String,
    event_type: Option<String>,
}

/// A kind as the index has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct KindHash {
    endpoint: i64,
    event_type: i64,
}

struct Kind {
    hash: KindHash,
    first: Option<FirstOfKind>,
}

/// The first due event of a kind.
struct FirstOfKind {
    due: i64,
    arrival: i64,
    endpoint: String,
    event_type: Option<String>,
}

impl Scan<'_> {
    pub(super) async fn fetch_all(&self, query: impl Fn() -> Statement) -> Result<Vec<PgRow>, Fault> {
        self.connection.fetch_all(self.until, query).await
    }
}

impl Picker {
    pub(super) fn new(statements: &Statements) -> Self {
        Self {
            candidates_sql: statements.text("candidates"),
            kinds_sql: statements.text("kinds"),
            of_kinds_sql: statements.text("of_kinds"),
            resume_after: Mutex::default(),
        }
    }

    /// Returns the keys of the events to lease.
    pub(super) async fn pick(&self, scan: &Scan<'_>, request: &LeaseRequest<'_>) -> Result<Vec<String>, Fault> {
        let looked_at = 2 * request.limit + PASSED_OVER;
        let query = || statement(&self.candidates_sql).bind(scan.start).bind(bigint(looked_at));
        let candidates = read_candidates(&scan.fetch_all(query).await?)?;
        let are_all = candidates.len() < looked_at;
        let picked = with_room(&candidates, request);
        if are_all || picked.len() == request.limit {
            return Ok(picked);
        }
        let mut all = candidates;
        for _ in 0..ROUNDS {
            let (kinds, are_all) = self.next_kinds(scan, request).await?;
            let kinds = kinds_with_room(kinds, request);
            if !kinds.is_empty() {
                all.extend(self.first_of_kinds(scan, kinds).await?);
                break;
            }
            if are_all {
                break;
            }
        }
        let mut seen = HashSet::new();
        all.retain(|candidate| seen.insert(candidate.key.clone()));
        all.sort_unstable_by_key(|candidate| (candidate.due, candidate.arrival));
        Ok(with_room(&all, request))
    }

    /// Returns kinds, and whether these are all.
    async fn next_kinds(&self, scan: &Scan<'_>, request: &LeaseRequest<'_>) -> Result<(Vec<Kind>, bool), Fault> {
        let ranges: Vec<Option<Box<str>>> = match request.endpoints {
            [] => vec![None],
            endpoints => endpoints.iter().cloned().map(Some).collect(),
        };
        let after: Vec<Option<KindHash>> = {
            let resume_after = lock(&self.resume_after);
            ranges.iter().map(|range| resume_after.get(range).copied()).collect()
        };
        let most = (KINDS / ranges.len()).max(LEAST_KINDS);
        let query = || {
            statement(&self.kinds_sql)
                .bind(scan.start)
                .bind(ranges.iter().map(|name| name.as_deref()).collect::<Vec<_>>())
                .bind(after.iter().map(|after| after.map(|hash| hash.endpoint)).collect::<Vec<_>>())
                .bind(after.iter().map(|after| after.map(|hash| hash.event_type)).collect::<Vec<_>>())
                .bind(endpoints_without_room(request))
                .bind(bigint(most))
        };
        let rows = scan.fetch_all(query).await?;
        let mut found: Vec<Vec<Kind>> = ranges.iter().map(|_| Vec::new()).collect();
        for row in &rows {
            found[index(row, ranges.len())?].push(read_kind(row)?);
        }
        let mut resume_after = lock(&self.resume_after);
        let mut are_all = after.iter().all(Option::is_none);
        for (range, kinds) in ranges.into_iter().zip(&found) {
            match kinds.iter().map(|kind| kind.hash).max() {
                Some(last) if kinds.len() >= most => {
                    are_all = false;
                    resume_after.insert(range, last);
                }
                _ => _ = resume_after.remove(&range),
            }
        }
        Ok((found.into_iter().flatten().collect(), are_all))
    }

    /// Returns the first due events of these kinds, up to a number of each.
    async fn first_of_kinds(&self, scan: &Scan<'_>, kinds: Vec<(KindHash, usize)>) -> Result<Vec<Candidate>, Fault> {
        let query = || {
            statement(&self.of_kinds_sql)
                .bind(scan.start)
                .bind(kinds.iter().map(|(hash, _)| hash.endpoint).collect::<Vec<_>>())
                .bind(kinds.iter().map(|(hash, _)| hash.event_type).collect::<Vec<_>>())
                .bind(kinds.iter().map(|(_, room)| bigint(*room)).collect::<Vec<_>>())
        };
        read_candidates(&scan.fetch_all(query).await?).map_err(Into::into)
    }
}

/// Returns the keys of the first candidates that the worker has room for.
fn with_room(candidates: &[Candidate], request: &LeaseRequest<'_>) -> Vec<String> {
    let mut budget = LeaseBudget::new(request);
    let has_room = |candidate: &&Candidate| budget.try_take(&candidate.endpoint, candidate.event_type.as_deref());
    let picked = candidates.iter().filter(has_room).take(request.limit);
    picked.map(|candidate| candidate.key.clone()).collect()
}

/// Returns the kinds of the next events, and how many events of each the worker has room for. The other kinds are left
/// out: their first events are due later than the events that fill the lease, or than those that fill the worker's room
/// for their endpoint or type.
fn kinds_with_room(kinds: Vec<Kind>, request: &LeaseRequest<'_>) -> Vec<(KindHash, usize)> {
    let mut due: Vec<_> = kinds.into_iter().filter_map(|kind| Some((kind.hash, kind.first?))).collect();
    due.sort_unstable_by_key(|(_, first)| (first.due, first.arrival));
    let mut budget = LeaseBudget::new(request);
    due.retain(|(_, first)| budget.try_take(&first.endpoint, first.event_type.as_deref()));
    due.truncate(request.limit);
    let room = |first: &FirstOfKind| room(request, &first.endpoint, first.event_type.as_deref());
    due.iter().map(|(hash, first)| (*hash, room(first))).collect()
}

/// How many events of one kind the worker has room for.
fn room(request: &LeaseRequest<'_>, endpoint: &str, event_type: Option<&str>) -> usize {
    let of = |limits: Option<&KindLimits>, kind| limits.map_or(usize::MAX, |limits| limits.of(kind));
    let of_type = event_type.map_or(usize::MAX, |event_type| of(request.per_type, event_type));
    request.limit.min(of(request.per_endpoint, endpoint)).min(of_type)
}

fn endpoints_without_room<'a>(request: &LeaseRequest<'a>) -> Vec<&'a str> {
    let left = request.per_endpoint.into_iter().flat_map(|limits| &limits.left);
    left.filter(|(_, left)| **left == 0).map(|(endpoint, _)| &**endpoint).collect()
}

fn read_candidates(rows: &[PgRow]) -> Result<Vec<Candidate>, sqlx::Error> {
    let read = |row: &PgRow| {
        Ok(Candidate {
            due: row.try_get("due")?,
            arrival: row.try_get("arrival")?,
            key: row.try_get("key")?,
            endpoint: row.try_get("endpoint")?,
            event_type: row.try_get("event_type")?,
        })
    };
    rows.iter().map(read).collect()
}

fn read_kind(row: &PgRow) -> Result<Kind, sqlx::Error> {
    let hash = KindHash { endpoint: row.try_get("endpoint_hash")?, event_type: row.try_get("type_hash")? };
    let Some(due) = row.try_get("due")? else { return Ok(Kind { hash, first: None }) };
    let first = FirstOfKind {
        due,
        arrival: row.try_get("arrival")?,
        endpoint: row.try_get("endpoint")?,
        event_type: row.try_get("event_type")?,
    };
    Ok(Kind { hash, first: Some(first) })
}
