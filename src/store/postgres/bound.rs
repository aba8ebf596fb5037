use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::lane::Lane;
use super::schema::Statements;

/// How often it is looked whether a bound is needed, and where it can be.
const EVERY: Duration = Duration::from_secs(1);

/// With fewer dead rows than this, a walk over all of them is short.
const MANY_DEAD: i64 = 20_000;

/// A walk over everything that takes longer than this is worth a bound.
const COSTLY: Duration = Duration::from_millis(5);

/// How many times as long as a walk over everything takes, nobody walks so far.
const PAUSE_FACTOR: u32 = 20;

/// A walk over everything that takes longer than this is given up.
pub(super) const LONGEST_WALK: Duration = Duration::from_secs(300);

/// How far the bound stays behind the clock, in microseconds. An event may be due since its transaction began, and is seen
/// when that is committed.
const MARGIN: i64 = 2_000_000;

/// From where on leases walk the index of what is due.
///
/// An event that ends leaves entries in that index, which are removed when no transaction can see them any more. While one
/// is open for long, a backup for example, they pile up, and a lease that began with the oldest would visit them all. So once they
/// are many, and cost time, leases begin where the first event was seen that is still to be run, or shortly before now.
///
/// An event may get below the bound all the same: it is put back to where it was, or let go on after it was held up. If
/// this process did it, the bound follows at once ([`lower`](Self::lower)). Otherwise, as for an event that was committed later than the
/// margin allows for, it is found by a [walk](Self::walk) over everything below the bound, which is repeated again and again.
pub(super) struct Bound {
    state: Mutex<State>,
}

struct State {
    /// In microseconds since 1970; `None` is the beginning.
    at: Option<i64>,
    /// Changes whenever there begins to be a bound, or there is none any more.
    era: u64,
    /// Raises that were begun, by number, and the lowest that an event was put since then.
    begun: Vec<(u64, Option<i64>)>,
    raises: u64,
    next_look: Instant,
    next_walk: Instant,
    /// A lease that began with the oldest entry was too late.
    needed: bool,
}

/// A look at where the bound can be. What happens meanwhile is noted, until this is dropped.
struct Raise<'a> {
    bound: &'a Bound,
    number: u64,
    at: Option<i64>,
    era: u64,
}

/// The statements that tend the bound.
pub(super) struct BoundKeeper {
    bound: Arc<Bound>,
    look: Arc<str>,
    walk: Arc<str>,
    /// For what takes long.
    aside: Arc<Lane>,
}

impl Bound {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let state =
            State { at: None, era: 0, begun: Vec::new(), raises: 0, next_look: now, next_walk: now, needed: false };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn at(&self) -> Option<i64> {
        self.lock().at
    }

    /// An event is due since then, and has been put there only now.
    pub(super) fn lower(&self, due: i64) {
        let mut state = self.lock();
        state.at = state.at.map(|at| at.min(due));
        for (_, lowest) in &mut state.begun {
            *lowest = Some(lowest.map_or(due, |lowest| lowest.min(due)));
        }
    }

    /// A lease took too long.
    pub(super) fn was_late(&self) {
        let mut state = self.lock();
        (state.needed, state.next_look) = (true, Instant::now());
    }

    fn begin(&self) -> Raise<'_> {
        let mut state = self.lock();
        state.raises += 1;
        let number = state.raises;
        state.begun.push((number, None));
        Raise { bound: self, number, at: state.at, era: state.era }
    }

    fn remove(&self) {
        let mut state = self.lock();
        state.era += u64::from(state.at.is_some());
        state.at = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Raise<'_> {
    /// The bound is at `seen` now, or where an event was put meanwhile.
    fn to(&self, seen: i64) {
        let mut state = self.bound.lock();
        if state.era == self.era {
            state.era += u64::from(state.at.is_none());
            let lowest = state.begun.iter().find(|(number, _)| *number == self.number).and_then(|(_, lowest)| *lowest);
            state.at = Some(lowest.map_or(seen, |lowest| lowest.min(seen)));
        }
    }
}

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.bound.lock().begun.retain(|(number, _)| *number != self.number);
    }
}

impl BoundKeeper {
    pub(super) fn new(bound: Arc<Bound>, statements: &Statements, aside: Arc<Lane>) -> Self {
        Self { bound, look: statements.bound.clone(), walk: statements.below_bound.clone(), aside }
    }

    pub(super) fn bound(&self) -> &Arc<Bound> {
        &self.bound
    }

    /// Looks where the bound can be, if it is time.
    pub(super) async fn look(&self, lane: &Lane, until: Instant) {
        {
            let (mut state, now) = (self.bound.lock(), Instant::now());
            if now < state.next_look {
                return;
            }
            state.next_look = now + EVERY;
        }
        let begun = self.bound.begin();
        let query = || sqlx::query(AssertSqlSafe(self.look.clone())).bind(begun.at);
        // If it fails, whoever leases is told in a moment.
        let Ok(rows) = lane.run_until(until, query).await else { return };
        let _ = rows.first().map(|row| self.heed(&begun, row));
    }

    fn heed(&self, begun: &Raise<'_>, row: &PgRow) -> Result<(), sqlx::Error> {
        let (dead, now): (i64, i64) = (row.try_get("dead")?, row.try_get("now")?);
        let needed = std::mem::take(&mut self.bound.lock().needed);
        // A bound that there is stays until a walk finds that it is not worth it.
        if dead < MANY_DEAD && !needed && begun.at.is_none() {
            return Ok(());
        }
        let recently = now - MARGIN;
        match begun.at {
            Some(_) => {
                let first: Option<i64> = row.try_get("first")?;
                begun.to(first.map_or(recently, |first| first.min(recently)));
            }
            // Whatever is below is found by the walk.
            None if needed => begun.to(recently),
            None => {}
        }
        self.walk(recently);
        Ok(())
    }

    /// Has everything below the bound walked over, if it is time. Nobody waits for it.
    fn walk(&self, recently: i64) {
        {
            let (mut state, now) = (self.bound.lock(), Instant::now());
            if now < state.next_walk {
                return;
            }
            // Until it is known how long this one takes.
            state.next_walk = now + LONGEST_WALK;
        }
        let (bound, lane, sql) = (self.bound.clone(), self.aside.clone(), self.walk.clone());
        tokio::spawn(async move {
            let (begun, asked) = (bound.begin(), Instant::now());
            let query = || sqlx::query(AssertSqlSafe(sql.clone())).bind(begun.at);
            let walked = lane.run_until(lane.until(), query).await;
            let took = asked.elapsed();
            match walked {
                Ok(rows) => {
                    let first = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
                    match begun.at {
                        _ if took < COSTLY => bound.remove(),
                        Some(_) => first.into_iter().for_each(|first| bound.lower(first)),
                        None => begun.to(first.map_or(recently, |first| first.min(recently))),
                    }
                }
                Err(fault) if fault.is_late() => {}
                // Nobody finds what is below the bound, so there must not be one.
                Err(_) => bound.remove(),
            }
            bound.lock().next_walk = Instant::now() + EVERY.max(took * PAUSE_FACTOR);
        });
    }
}
