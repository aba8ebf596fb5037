//! Work beside the traffic: promoting the events of stalled orders, and purging.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::{PgConnection, Row as _};
use tokio::time::{Instant, timeout};

use super::connection::DedicatedConnection;
use super::connector::{Connector, in_transaction};
use super::fault::Fault;
use super::statements::{Statements, statement};
use super::wake::Promoter;
use crate::lock::lock;
use crate::store::StoreError;
use crate::telemetry;

/// The pause between two checks for stalled orders.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The pause after a check, as a multiple of the time that the check took: behind an old snapshot it takes long.
const PAUSE_FACTOR: u32 = 20;

/// How many orders one check looks at.
const ORDERS: i64 = 1_000;

/// How many rows one statement of the purge deletes or changes: few enough to be over in milliseconds.
const PURGED_AT_ONCE: i64 = 1_000;

/// The deadline of each purge statement, and of the wait for a pool connection.
const DEADLINE: Duration = Duration::from_secs(30);

/// Looks for orders whose next event waits behind nothing, because a crash came before its promotion.
pub(super) struct StalledOrders {
    sql: Arc<str>,
    promoter: Promoter,
    next_check: Mutex<NextCheck>,
}

struct NextCheck {
    at: Instant,
    /// The order behind which the check begins.
    after: String,
}

impl StalledOrders {
    pub(super) fn new(statements: &Statements, promoter: Promoter) -> Self {
        let next_check = Mutex::new(NextCheck { at: Instant::now(), after: String::new() });
        Self { sql: statements.text("stalled_orders"), promoter, next_check }
    }

    /// Checks some orders, if it is time.
    pub(super) async fn check(&self, connection: &DedicatedConnection, until: Instant) {
        let Some(after) = self.begin_check() else { return };
        let begun_at = Instant::now();
        let rows = connection.fetch_all(until, || statement(&self.sql).bind(&*after).bind(ORDERS)).await;
        self.postpone(begun_at.elapsed());
        // If this fails, so does the lease that follows, and its caller gets the error.
        let Ok(rows) = rows else { return };
        let orders: Vec<&str> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
        self.promoter.promote_next(connection, &orders, until).await;
        if let Some(order) = orders.last()
            && i64::try_from(orders.len()).is_ok_and(|found| found == ORDERS)
        {
            lock(&self.next_check).after = (*order).to_owned();
        }
    }

    /// Returns the order behind which to begin, if it is time for a check.
    fn begin_check(&self) -> Option<String> {
        let (mut next, now) = (lock(&self.next_check), Instant::now());
        if now < next.at {
            return None;
        }
        next.at = now + CHECK_INTERVAL;
        Some(std::mem::take(&mut next.after))
    }

    fn postpone(&self, took: Duration) {
        let mut next = lock(&self.next_check);
        next.at = next.at.max(Instant::now() + took * PAUSE_FACTOR);
    }
}

/// Deletes rows whose retention is over, and bodies that are kept for a shorter time.
pub(super) struct Purge {
    connector: Connector,
    delete_sql: Arc<str>,
    delete_bodies_sql: Arc<str>,
    /// `None` purges only when [`run`](Self::run) is called.
    every: Option<Duration>,
    started: std::time::Instant,
    /// When traffic starts the next purge, in milliseconds since the start.
    due: AtomicU64,
}

impl Purge {
    pub(super) fn new(connector: Connector, statements: &Statements, every: Option<Duration>) -> Self {
        let delete_sql = statements.matching("delete", "{expired}");
        let delete_bodies_sql = statements.text("purge_bodies");
        Self {
            connector,
            delete_sql,
            delete_bodies_sql,
            every,
            started: std::time::Instant::now(),
            due: AtomicU64::new(0),
        }
    }

    /// Called by traffic. Purges in the background if it is time: no task has to be started, and none stopped.
    pub(super) fn start_if_due(self: &Arc<Self>) {
        let Some(every) = self.every else { return };
        let now = milliseconds(self.started.elapsed());
        let due = self.due.load(Ordering::Relaxed);
        let next = now.saturating_add(milliseconds(every));
        if now < due || self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let purge = self.clone();
        tokio::spawn(async move {
            match purge.run().await {
                Ok(rows) => telemetry::purged(rows),
                Err(fault) => telemetry::purge_failed(&StoreError::from(fault)),
            }
        });
    }

    /// Purges, and returns how many rows were deleted.
    pub(super) async fn run(&self) -> Result<u64, Fault> {
        let connection = timeout(DEADLINE, self.connector.pool.acquire()).await;
        let mut connection = connection.map_err(|_| Fault::timed_out())??;
        let purged = self.run_on(&mut connection).await;
        if purged.is_err() {
            // A connection that was given up half-way may be in a transaction, and must not return to the pool.
            drop(connection.detach());
        }
        purged
    }

    async fn run_on(&self, connection: &mut PgConnection) -> Result<u64, Fault> {
        let deleted = self.repeat(connection, &self.delete_sql).await?;
        self.repeat(connection, &self.delete_bodies_sql).await?;
        Ok(deleted)
    }

    /// Repeats a statement until it finds no more rows, and returns how many there were.
    async fn repeat(&self, connection: &mut PgConnection, sql: &Arc<str>) -> Result<u64, Fault> {
        let mut rows = 0;
        loop {
            let changed = timeout(DEADLINE, self.run_once(connection, sql)).await.map_err(|_| Fault::timed_out())??;
            rows += changed.unsigned_abs();
            if changed < PURGED_AT_ONCE {
                return Ok(rows);
            }
        }
    }

    async fn run_once(&self, connection: &mut PgConnection, sql: &Arc<str>) -> Result<i64, sqlx::Error> {
        let query = statement(sql).bind(PURGED_AT_ONCE);
        let rows = match self.connector.pooled {
            true => in_transaction(connection, "BEGIN", query).await?,
            false => query.fetch_all(connection).await?,
        };
        rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
