//! The ledger's tables, in Postgres or SQLite: the same SQL serves both.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{PgPool, SqlitePool};
use tower_webhook::queue::Queue;
use tower_webhook::store::{PostgresStore, SqliteStore};
use tower_webhook::{HandlerError, WebhookEvent};

pub(crate) enum Books {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

const ACCOUNT: &str = "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance BIGINT NOT NULL)";
const PAYMENTS: &str = "CREATE TABLE IF NOT EXISTS payments (event_id TEXT NOT NULL, amount BIGINT NOT NULL)";
const OPENED: &str = "INSERT INTO account VALUES (1, 0) ON CONFLICT DO NOTHING";

impl Books {
    /// Opens the ledger, and the store that is to be in the same database.
    pub(crate) async fn open(address: &str) -> Result<(Self, Arc<dyn Queue>), Box<dyn Error>> {
        if let Some(path) = address.strip_prefix("sqlite:") {
            let options = SqliteConnectOptions::new().filename(path).create_if_missing(true).foreign_keys(true);
            let pool = SqlitePool::connect_with(options).await?;
            let store = SqliteStore::new(&pool).await?;
            for statement in [ACCOUNT, PAYMENTS, OPENED] {
                sqlx::query(statement).execute(&pool).await?;
            }
            return Ok((Self::Sqlite(pool), Arc::new(store)));
        }
        let pool = PgPool::connect(address).await?;
        let store = PostgresStore::new(pool.clone());
        store.migrate().await?;
        let mut tx = pool.begin().await?;
        // Two ledgers that start at once would both create the tables, and one of them fail.
        sqlx::query("SELECT pg_advisory_xact_lock(7233)").execute(&mut *tx).await?;
        for statement in [ACCOUNT, PAYMENTS, OPENED] {
            sqlx::query(statement).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok((Self::Postgres(pool), Arc::new(store)))
    }

    /// The effect, and the event's completion with it.
    pub(crate) async fn pay<T: Sync>(
        &self,
        event: &WebhookEvent<T>,
        amount: i64,
        pause: Duration,
    ) -> Result<(), HandlerError> {
        macro_rules! pay_in {
            ($tx:expr) => {{
                let mut tx = $tx.await?;
                // First thing: it fails for a zombie, and keeps everybody else out until the commit.
                event.complete_in(&mut *tx).await?;
                sqlx::query("INSERT INTO payments VALUES ($1, $2)")
                    .bind(event.id())
                    .bind(amount)
                    .execute(&mut *tx)
                    .await?;
                println!("paying {amount} for {}, not committed yet", event.id());
                tokio::time::sleep(pause).await;
                sqlx::query("UPDATE account SET balance = balance + $1").bind(amount).execute(&mut *tx).await?;
                tx.commit().await?;
            }};
        }
        match self {
            Self::Postgres(pool) => pay_in!(pool.begin()),
            // Takes the write lock at once: one that is taken later may have come too late.
            Self::Sqlite(pool) => pay_in!(pool.begin_with("BEGIN IMMEDIATE")),
        }
        Ok(())
    }

    pub(crate) async fn balance(&self) -> sqlx::Result<i64> {
        let balance = "SELECT balance FROM account";
        match self {
            Self::Postgres(pool) => sqlx::query_scalar(balance).fetch_one(pool).await,
            Self::Sqlite(pool) => sqlx::query_scalar(balance).fetch_one(pool).await,
        }
    }
}
