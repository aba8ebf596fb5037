use std::sync::Arc;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::access::Access;
use super::bound::Bound;
use super::lane::Lane;
use super::schema::Statements;

/// Lets the first event of an order go on that was held up behind another one.
///
/// Whoever puts an event in behind another one, and whoever ends one, asks for it after that is committed: one of the two sees
/// both. If neither does, because of a crash or because somebody holds the row, it is found by whoever
/// [looks](super::leases) every now and then.
pub(super) struct Promotion {
    sql: Arc<str>,
    bound: Arc<Bound>,
}

impl Promotion {
    pub(super) fn new(statements: &Statements, bound: Arc<Bound>) -> Self {
        Self { sql: statements.promote.clone(), bound }
    }

    /// On a connection that is at hand.
    pub(super) async fn run(&self, lane: &Lane, orders: &[&str], until: Instant) {
        if !orders.is_empty() {
            let query = || sqlx::query(AssertSqlSafe(self.sql.clone())).bind(orders.to_vec());
            self.lower(&lane.run_until(until, query).await.unwrap_or_default());
        }
    }

    /// On one of the pool's.
    pub(super) async fn run_over(&self, access: &Access, orders: &[String]) {
        if !orders.is_empty() {
            let query = sqlx::query(AssertSqlSafe(self.sql.clone())).bind(orders);
            self.lower(&access.fetch_all(query).await.unwrap_or_default());
        }
    }

    /// They have been due since before they were held up.
    fn lower(&self, rows: &[PgRow]) {
        rows.iter().filter_map(|row| row.try_get(0).ok()).for_each(|due| self.bound.lower(due));
    }
}
