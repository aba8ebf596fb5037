use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, PgConnection, Row as _};
use tokio::time::timeout;

use super::access::{Access, in_transaction};
use super::fault::Fault;
use super::schema::Statements;
use crate::store::StoreError;
use crate::telemetry;

/// How many rows one statement deletes or changes: few enough to be over in milliseconds.
const BATCH: i64 = 1_000;

/// For one such statement, and the pool's connection for it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Deletes what has expired, and bodies that are kept no longer, now and then.
pub(super) struct Purge {
    access: Access,
    delete: Arc<str>,
    /// Removes bodies that are kept for a shorter time than their events.
    remove_bodies: Arc<str>,
    /// `None`: only when asked.
    every: Option<Duration>,
    started: Instant,
    /// When traffic sets off the next purge, in milliseconds since the start.
    due: AtomicU64,
}

impl Purge {
    pub(super) fn new(access: Access, statements: &Statements, every: Option<Duration>) -> Self {
        let (delete, remove_bodies) = (statements.purge.clone(), statements.purge_bodies.clone());
        Self { access, delete, remove_bodies, every, started: Instant::now(), due: AtomicU64::new(0) }
    }

    /// There is traffic. Purges in the background if it is time: nothing to start, and nothing to stop.
    pub(super) fn nudge(self: &Arc<Self>) {
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

    /// Deletes what has expired, and removes bodies; how many rows were deleted.
    pub(super) async fn run(&self) -> Result<u64, Fault> {
        let connection = timeout(DEADLINE, self.access.pool.acquire()).await;
        let mut connection = connection.map_err(|_| Fault::timed_out())??;
        let purged = self.run_on(&mut connection).await;
        if purged.is_err() {
            // Given up half-way, it may be inside of a transaction: nobody is to get it from the pool.
            drop(connection.detach());
        }
        purged
    }

    async fn run_on(&self, connection: &mut PgConnection) -> Result<u64, Fault> {
        let deleted = self.repeat(connection, &self.delete).await?;
        self.repeat(connection, &self.remove_bodies).await?;
        Ok(deleted)
    }

    /// Batch after batch until there is nothing left; how many rows there were.
    async fn repeat(&self, connection: &mut PgConnection, sql: &Arc<str>) -> Result<u64, Fault> {
        let mut rows = 0;
        loop {
            let changed = timeout(DEADLINE, self.once(connection, sql)).await.map_err(|_| Fault::timed_out())??;
            rows += changed.unsigned_abs();
            if changed < BATCH {
                return Ok(rows);
            }
        }
    }

    async fn once(&self, connection: &mut PgConnection, sql: &Arc<str>) -> Result<i64, sqlx::Error> {
        let query = sqlx::query(AssertSqlSafe(sql.clone())).bind(BATCH);
        let rows = match self.access.pooled {
            true => in_transaction(connection, "BEGIN", query).await?,
            false => query.fetch_all(connection).await?,
        };
        rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
