//! Where leases start to scan the index of due events.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use super::connection::DedicatedConnection;
use super::statements::{Statements, statement};
use crate::lock::lock;

/// How often the start is updated.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// With fewer dead rows than this, a scan of all of them is short.
const MANY_DEAD: i64 = 20_000;

/// If a scan from the beginning takes no longer than this, leases start there.
const SHORT_SCAN: Duration = Duration::from_millis(5);

/// The pause after a scan from the beginning, as a multiple of the time that it took.
const PAUSE_FACTOR: u32 = 20;

/// When a scan from the beginning is given up.
pub(super) const LONGEST_SCAN: Duration = Duration::from_secs(300);

/// How far the start stays behind the server's clock, in microseconds. An event is due since its transaction began, and
/// can be seen once that is committed.
const MARGIN: i64 = 2_000_000;

/// Where leases start to scan the index of due events.
///
/// An event that ends leaves entries in that index, which are removed when no transaction can see them any more. While
/// a transaction is open for long, a backup for example, they pile up, and a lease that starts with the oldest entry
/// would visit them all. Once they are many, and cost time, leases start at the first event that is still to be run, or
/// shortly before now.
///
/// An event may become due before the start all the same: it is released to where it was, or promoted after it was
/// behind another one. If this process did it, the start follows at once ([`include`](Self::include)). If another
/// process did, or an event was committed later than the margin allows for, the event is found by a
/// [scan](ScanStartUpdater::scan_skipped) of everything before the start, which is repeated again and again.
pub(super) struct ScanStart {
    state: Mutex<State>,
}

struct State {
    /// In microseconds since 1970; `None` is the beginning of the index.
    start: Option<i64>,
    /// Changes when the start leaves the beginning, and when it returns there.
    generation: u64,
    /// The updates that have begun, by number, and when the earliest event that was included since then is due.
    pending: Vec<(u64, Option<i64>)>,
    updates: u64,
    next_update: Instant,
    next_scan: Instant,
    /// A lease has missed its deadline since the last update.
    has_timed_out: bool,
}

/// An update of the start. Events that are included meanwhile are noted until this is dropped.
struct Update<'a> {
    scan_start: &'a ScanStart,
    number: u64,
    start: Option<i64>,
    generation: u64,
}

/// Updates the start by statements.
pub(super) struct ScanStartUpdater {
    scan_start: Arc<ScanStart>,
    measure_sql: Arc<str>,
    first_before_sql: Arc<str>,
    /// For scans from the beginning, which may take long.
    search_connection: Arc<DedicatedConnection>,
}

impl ScanStart {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let state = State {
            start: None,
            generation: 0,
            pending: Vec::new(),
            updates: 0,
            next_update: now,
            next_scan: now,
            has_timed_out: false,
        };
        Self { state: Mutex::new(state) }
    }

    pub(super) fn get(&self) -> Option<i64> {
        self.lock().start
    }

    /// Moves the start back, if need be, to find an event that was put back to `due`, or promoted with that due time.
    pub(super) fn include(&self, due: i64) {
        let mut state = self.lock();
        state.start = state.start.map(|start| start.min(due));
        for (_, earliest) in &mut state.pending {
            *earliest = Some(earliest.map_or(due, |earliest| earliest.min(due)));
        }
    }

    /// Notes that a lease has missed its deadline.
    pub(super) fn lease_timed_out(&self) {
        let mut state = self.lock();
        (state.has_timed_out, state.next_update) = (true, Instant::now());
    }

    fn begin_update(&self) -> Update<'_> {
        let mut state = self.lock();
        state.updates += 1;
        let number = state.updates;
        state.pending.push((number, None));
        Update { scan_start: self, number, start: state.start, generation: state.generation }
    }

    fn return_to_beginning(&self) {
        let mut state = self.lock();
        state.generation += u64::from(state.start.is_some());
        state.start = None;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Update<'_> {
    /// Moves the start to `first`, or to the earliest event that was included meanwhile.
    fn set(&self, first: i64) {
        let mut state = self.scan_start.lock();
        if state.generation == self.generation {
            state.generation += u64::from(state.start.is_none());
            let own = state.pending.iter().find(|(number, _)| *number == self.number);
            let earliest = own.and_then(|(_, earliest)| *earliest);
            state.start = Some(earliest.map_or(first, |earliest| earliest.min(first)));
        }
    }
}

impl Drop for Update<'_> {
    fn drop(&mut self) {
        self.scan_start.lock().pending.retain(|(number, _)| *number != self.number);
    }
}

impl ScanStartUpdater {
    pub(super) fn new(
        scan_start: Arc<ScanStart>,
        statements: &Statements,
        search_connection: Arc<DedicatedConnection>,
    ) -> Self {
        let (measure_sql, first_before_sql) = (statements.text("measure_scan"), statements.text("first_before_scan"));
        Self { scan_start, measure_sql, first_before_sql, search_connection }
    }

    pub(super) fn scan_start(&self) -> &ScanStart {
        &self.scan_start
    }

    /// Updates the start, if it is time.
    pub(super) async fn update(&self, connection: &DedicatedConnection, until: Instant) {
        {
            let (mut state, now) = (self.scan_start.lock(), Instant::now());
            if now < state.next_update {
                return;
            }
            state.next_update = now + UPDATE_INTERVAL;
        }
        let update = self.scan_start.begin_update();
        // If this fails, so does the lease that follows, and its caller gets the error.
        let Ok(rows) = connection.fetch_all(until, || statement(&self.measure_sql).bind(update.start)).await else {
            return;
        };
        let _ = rows.first().map(|row| self.apply(&update, row));
    }

    fn apply(&self, update: &Update<'_>, row: &PgRow) -> Result<(), sqlx::Error> {
        let (dead, now): (i64, i64) = (row.try_get("dead")?, row.try_get("now")?);
        let has_timed_out = std::mem::take(&mut self.scan_start.lock().has_timed_out);
        // A start that has left the beginning stays until a scan finds that it is not worth it.
        if dead < MANY_DEAD && !has_timed_out && update.start.is_none() {
            return Ok(());
        }
        let recently = now - MARGIN;
        match update.start {
            Some(_) => {
                let first: Option<i64> = row.try_get("first")?;
                update.set(first.map_or(recently, |first| first.min(recently)));
            }
            // Events before it are found by the scan.
            None if has_timed_out => update.set(recently),
            None => {}
        }
        self.scan_skipped(recently);
        Ok(())
    }

    /// Scans everything before the start in the background, if it is time.
    fn scan_skipped(&self, recently: i64) {
        {
            let (mut state, now) = (self.scan_start.lock(), Instant::now());
            if now < state.next_scan {
                return;
            }
            // Until it is known how long this scan takes.
            state.next_scan = now + LONGEST_SCAN;
        }
        let (scan_start, sql) = (self.scan_start.clone(), self.first_before_sql.clone());
        let connection = self.search_connection.clone();
        tokio::spawn(async move {
            let (update, begun_at) = (scan_start.begin_update(), Instant::now());
            let scanned = connection.fetch_all(connection.deadline(), || statement(&sql).bind(update.start)).await;
            let took = begun_at.elapsed();
            match scanned {
                Ok(rows) => {
                    let first = rows.first().and_then(|row| row.try_get::<i64, _>(0).ok());
                    match update.start {
                        _ if took < SHORT_SCAN => scan_start.return_to_beginning(),
                        Some(_) => first.into_iter().for_each(|first| scan_start.include(first)),
                        None => update.set(first.map_or(recently, |first| first.min(recently))),
                    }
                }
                Err(fault) if fault.is_late() => {}
                // Events before the start would not be found.
                Err(_) => scan_start.return_to_beginning(),
            }
            scan_start.lock().next_scan = Instant::now() + UPDATE_INTERVAL.max(took * PAUSE_FACTOR);
        });
    }
}
