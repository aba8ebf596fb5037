use std::future::Future;

use super::CompletionStatement;
use crate::store::Dialect;

/// A connection in whose transaction a completion can be enlisted: sqlx's for Postgres and for SQLite.
pub trait Connection: sealed::Run + Send {}

mod sealed {
    use super::{CompletionStatement, Dialect, Future};

    pub trait Run {
        const DIALECT: Dialect;

        /// Runs the statement and says how many rows it changed.
        fn run(&mut self, statement: &CompletionStatement<'_>)
        -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
    }
}

macro_rules! connection {
    ($connection:ty, $dialect:expr) => {
        impl Connection for $connection {}

        impl sealed::Run for $connection {
            const DIALECT: Dialect = $dialect;

            async fn run(&mut self, statement: &CompletionStatement<'_>) -> Result<u64, sqlx::Error> {
                // Safe: the store wrote it, with nothing in it that came from outside.
                let query = sqlx::query(sqlx::AssertSqlSafe(statement.sql))
                    .persistent(statement.prepared)
                    .bind(statement.key)
                    .bind(statement.token.as_bytes().as_slice())
                    .bind(statement.summary)
                    .bind(statement.retention_ms);
                Ok(query.execute(self).await?.rows_affected())
            }
        }
    };
}

#[cfg(feature = "postgres")]
connection!(sqlx::PgConnection, Dialect::Postgres);
#[cfg(feature = "sqlite")]
connection!(sqlx::SqliteConnection, Dialect::Sqlite);
