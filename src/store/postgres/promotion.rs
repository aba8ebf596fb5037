use std::sync::Arc;

use sqlx::AssertSqlSafe;
use tokio::time::Instant;

use super::access::Access;
use super::lane::Lane;
use super::schema::Statements;

/// Lets the first event of an order go on that was held up behind another one.
///
/// Whoever puts an event in behind another one, and whoever ends one, asks for it after that is committed: one of the two sees
/// both. If neither does, because of a crash or because somebody holds the row, it is found by whoever
/// [looks](super::leases) every now and then.
pub(super) struct Promotion {
    sql: Arc<str>,
}

impl Promotion {
    pub(super) fn new(statements: &Statements) -> Self {
        Self { sql: statements.promote.clone() }
    }

    /// On a connection that is at hand.
    pub(super) async fn run(&self, lane: &Lane, orders: &[&str], until: Instant) {
        if !orders.is_empty() {
            let _ = lane.run_until(until, || sqlx::query(AssertSqlSafe(self.sql.clone())).bind(orders.to_vec())).await;
        }
    }

    /// On one of the pool's.
    pub(super) async fn run_over(&self, access: &Access, orders: &[String]) {
        if !orders.is_empty() {
            let _ = access.fetch_all(sqlx::query(AssertSqlSafe(self.sql.clone())).bind(orders)).await;
        }
    }
}
