use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::fault::Fault;
use super::lane::Lane;
use super::schema::Statements;
use super::wanted::Wanted;

/// How many events are looked at in the order in which they are due, beside twice as many as are wanted.
const LOOKED_AT: usize = 64;

/// How many kinds are looked at in one statement, those of all endpoints together.
const KINDS: usize = 1_000;

/// How often others are looked at, if there was nothing to lease among those.
const ROUNDS: usize = 4;

/// Chooses events for a worker that has not room for all kinds.
///
/// As long as most of what is due can be leased, events are looked at in their order. If most cannot, it is looked at each kind:
/// events that cannot be leased cost nothing, however many they are.
pub(super) struct Choice {
    candidates: Arc<str>,
    kinds: Arc<str>,
    of_kinds: Arc<str>,
    /// By endpoint, or for all of them: the kind behind which to look next. There is none unless there are very many kinds.
    places: Mutex<HashMap<Option<Box<str>>, Hashes>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    due: i64,
    arrival: i64,
    key: String,
    endpoint: String,
    event_type: Option<String>,
}

/// A kind, as the index has it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Hashes {
    endpoint: i64,
    event_type: i64,
}

/// A kind, by its first event that is due.
struct Kind {
    hashes: Hashes,
    first: Option<First>,
}

struct First {
    due: i64,
    arrival: i64,
    endpoint: String,
    event_type: Option<String>,
}

impl Choice {
    pub(super) fn new(statements: &Statements) -> Self {
        let Statements { candidates, kinds, of_kinds, .. } = statements;
        Self {
            candidates: candidates.clone(),
            kinds: kinds.clone(),
            of_kinds: of_kinds.clone(),
            places: Mutex::default(),
        }
    }

    /// The keys of events to lease.
    pub(super) async fn make(
        &self,
        lane: &Lane,
        wanted: &Wanted,
        bound: Option<i64>,
        until: Instant,
    ) -> Result<Vec<String>, Fault> {
        let looked_at = 2 * wanted.limit + LOOKED_AT;
        let query = || sqlx::query(AssertSqlSafe(self.candidates.clone())).bind(bound).bind(number(looked_at));
        let candidates = read(&lane.run_until(until, query).await?)?;
        let is_all = candidates.len() < looked_at;
        let chosen = pick(&candidates, wanted);
        if is_all || chosen.len() == wanted.limit {
            return Ok(chosen.into_iter().map(|at| candidates[at].key.clone()).collect());
        }
        let mut all = candidates;
        for _ in 0..ROUNDS {
            let (kinds, is_all) = self.look(lane, wanted, bound, until).await?;
            let wanted_kinds = with_room(kinds, wanted);
            if !wanted_kinds.is_empty() {
                all.extend(self.first_of(lane, wanted_kinds, bound, until).await?);
                break;
            }
            if is_all {
                break;
            }
        }
        let mut seen = HashSet::new();
        all.retain(|candidate| seen.insert(candidate.key.clone()));
        all.sort_unstable_by_key(|candidate| (candidate.due, candidate.arrival));
        Ok(pick(&all, wanted).into_iter().map(|at| all[at].key.clone()).collect())
    }

    /// Looks at kinds; and whether these were all.
    async fn look(
        &self,
        lane: &Lane,
        wanted: &Wanted,
        bound: Option<i64>,
        until: Instant,
    ) -> Result<(Vec<Kind>, bool), Fault> {
        let ranges: Vec<Option<Box<str>>> = match &*wanted.endpoints {
            [] => vec![None],
            endpoints => endpoints.iter().cloned().map(Some).collect(),
        };
        let after: Vec<Option<Hashes>> = {
            let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            ranges.iter().map(|range| places.get(range).copied()).collect()
        };
        let most = (KINDS / ranges.len()).max(16);
        let query = || {
            sqlx::query(AssertSqlSafe(self.kinds.clone()))
                .bind(bound)
                .bind(ranges.iter().map(|name| name.as_deref()).collect::<Vec<_>>())
                .bind(after.iter().map(|after| after.map(|hashes| hashes.endpoint)).collect::<Vec<_>>())
                .bind(after.iter().map(|after| after.map(|hashes| hashes.event_type)).collect::<Vec<_>>())
                .bind(wanted.full_endpoints())
                .bind(number(most))
        };
        let rows = lane.run_until(until, query).await?;
        let mut seen: Vec<Vec<Kind>> = ranges.iter().map(|_| Vec::new()).collect();
        for row in &rows {
            let range = super::lane::place(&mut seen, row)?;
            range.push(kind(row)?);
        }
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_all = after.iter().all(Option::is_none);
        for (range, seen) in ranges.into_iter().zip(&seen) {
            match seen.iter().map(|kind| kind.hashes).max() {
                Some(last) if seen.len() >= most => {
                    is_all = false;
                    places.insert(range, last);
                }
                _ => _ = places.remove(&range),
            }
        }
        Ok((seen.into_iter().flatten().collect(), is_all))
    }

    /// The events of these kinds that have been due the longest, so many of each.
    async fn first_of(
        &self,
        lane: &Lane,
        kinds: Vec<(Hashes, usize)>,
        bound: Option<i64>,
        until: Instant,
    ) -> Result<Vec<Candidate>, Fault> {
        let query = || {
            sqlx::query(AssertSqlSafe(self.of_kinds.clone()))
                .bind(bound)
                .bind(kinds.iter().map(|(hashes, _)| hashes.endpoint).collect::<Vec<_>>())
                .bind(kinds.iter().map(|(hashes, _)| hashes.event_type).collect::<Vec<_>>())
                .bind(kinds.iter().map(|(_, room)| number(*room)).collect::<Vec<_>>())
        };
        read(&lane.run_until(until, query).await?).map_err(Into::into)
    }
}

/// Of candidates in their order, the places of those that there is room for.
fn pick(candidates: &[Candidate], wanted: &Wanted) -> Vec<usize> {
    let mut budget = wanted.rooms();
    let mut has_room = |candidate: &Candidate| budget.try_take(&candidate.endpoint, candidate.event_type.as_deref());
    (0..candidates.len()).filter(|at| has_room(&candidates[*at])).take(wanted.limit).collect()
}

/// The kinds that the next events are of, and how many there is room for of each. An event of any other kind comes too late, or
/// there is no room for it when its turn comes.
fn with_room(kinds: Vec<Kind>, wanted: &Wanted) -> Vec<(Hashes, usize)> {
    let mut due: Vec<_> = kinds.into_iter().filter_map(|kind| Some((kind.hashes, kind.first?))).collect();
    due.sort_unstable_by_key(|(_, first)| (first.due, first.arrival));
    let mut budget = wanted.rooms();
    due.retain(|(_, first)| budget.try_take(&first.endpoint, first.event_type.as_deref()));
    due.truncate(wanted.limit);
    let room = |first: &First| wanted.room(&first.endpoint, first.event_type.as_deref());
    due.iter().map(|(hashes, first)| (*hashes, room(first))).collect()
}

fn read(rows: &[PgRow]) -> Result<Vec<Candidate>, sqlx::Error> {
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

fn kind(row: &PgRow) -> Result<Kind, sqlx::Error> {
    let hashes = Hashes { endpoint: row.try_get("endpoint_hash")?, event_type: row.try_get("type_hash")? };
    let Some(due) = row.try_get("due")? else { return Ok(Kind { hashes, first: None }) };
    let first = First {
        due,
        arrival: row.try_get("arrival")?,
        endpoint: row.try_get("endpoint")?,
        event_type: row.try_get("event_type")?,
    };
    Ok(Kind { hashes, first: Some(first) })
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
