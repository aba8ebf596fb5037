//! A receiver on a Postgres store.

use std::collections::BTreeSet;

use sqlx::{PgPool, Row};
use tower_webhook::store::PostgresStore;

use crate::postgres::fixture::Fixture;
use crate::support::audited::Audited;
pub(crate) use crate::support::audited::assert_unavailable;
use crate::support::checker::Ledger;
use crate::support::servers::postgres::PostgresServer;

/// On the default table.
pub(crate) type Receiver = Audited<PostgresStore>;

impl Receiver {
    pub(crate) async fn on(server: &PostgresServer) -> Self {
        let receiver = Self::with_pool(server.pool());
        receiver.store.migrate().await.expect("a table");
        receiver
    }

    pub(crate) fn with_pool(pool: PgPool) -> Self {
        Self::on_store(PostgresStore::new(pool))
    }

    pub(crate) fn on_store(store: PostgresStore) -> Self {
        Self::over(store, Ledger::default())
    }

    /// Looks into its table, and changes it.
    pub(crate) fn fixture(&self, server: &PostgresServer) -> Fixture {
        Fixture { pool: server.pool(), table: "webhook_events".to_owned(), store: self.store.clone() }
    }

    /// Never lost, never doubled, never let in.
    pub(crate) async fn check(&self, server: &PostgresServer) {
        let rows = sqlx::query("SELECT key FROM webhook_events").fetch_all(&server.pool()).await;
        let keys: BTreeSet<String> = rows.expect("the table").iter().map(|row| row.get(0)).collect();
        self.ledger.check_keys(&keys, "no seed: nothing is random here");
    }
}
