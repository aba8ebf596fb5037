use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};

use super::access::Access;
use super::fault::Fault;
use super::lane::Lane;
use super::schema::Statements;
use crate::store::StoreError;
use crate::store::group::{Answers, Engine};

/// Counts what is waiting, on a connection of its own: receivers ask again and again, and handlers that have taken all of the pool's
/// connections must not keep them from an answer.
pub(super) struct Waiting {
    lane: Lane,
    sql: Arc<str>,
}

impl Waiting {
    pub(super) fn new(access: &Access, deadline: Duration, statements: &Statements) -> Self {
        // In the order of the index, and no further than is asked, whatever the statistics say.
        let lane = Lane::new("tower-webhook counts", access, deadline, deadline).with("SET enable_bitmapscan = off");
        Self { lane, sql: statements.waiting.clone() }
    }

    async fn count(&self, up_to: u64) -> Result<u64, Fault> {
        let up_to = i64::try_from(up_to).unwrap_or(i64::MAX);
        let query = || sqlx::query(AssertSqlSafe(self.sql.clone())).bind(up_to);
        let rows = self.lane.run_until(self.lane.until(), query).await?;
        let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
        Ok(count.unsigned_abs())
    }
}

impl Engine for Waiting {
    type Question = u64;
    type Answer = u64;

    /// One count answers all that were asked together.
    async fn answer(&self, batch: &[u64]) -> Answers<u64> {
        let count = self.count(batch.iter().copied().max().unwrap_or_default()).await;
        let told = |up_to: &u64| count.clone().map(|count| count.min(*up_to)).map_err(StoreError::from);
        batch.iter().map(told).collect()
    }

    fn unheard(&self, _: u64, _: u64) {}
}
