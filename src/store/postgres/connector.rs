//! How the store reaches its server, and how it runs a statement through a pooler.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow, Postgres};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};

/// How many statements a dedicated connection keeps prepared.
const PREPARED: usize = 8;

/// The ways to the server: sessions, or a pooler that gives each transaction another session.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) pool: PgPool,
    pub(super) pooled: bool,
    pub(super) direct: Option<PgConnectOptions>,
    /// How long a batch may take on a dedicated connection.
    pub(super) deadline: Duration,
}

impl Connector {
    /// The options of a dedicated connection. Read every time: the pool's options may have been replaced, by those with
    /// a new password for example.
    pub(super) fn options(&self, name: &str) -> PgConnectOptions {
        let prepared = if self.pooled { 0 } else { PREPARED };
        (*self.pool.connect_options()).clone().application_name(name).statement_cache_capacity(prepared)
    }

    /// Whether a connection can be a session.
    pub(super) fn has_sessions(&self) -> bool {
        self.direct.is_some() || !self.pooled
    }

    /// The options of a connection that is a session, [if there can be one](Self::has_sessions).
    pub(super) fn session_options(&self, name: &str) -> PgConnectOptions {
        match &self.direct {
            Some(direct) => direct.clone().application_name(name),
            None => self.options(name),
        }
    }

    /// Runs a statement on a connection of the pool.
    pub(super) async fn fetch_all(&self, query: Query<'_, Postgres, PgArguments>) -> Result<Vec<PgRow>, sqlx::Error> {
        if !self.pooled {
            return query.fetch_all(&self.pool).await;
        }
        // Dropped half-way, it is rolled back.
        let mut transaction = self.pool.begin().await?;
        let rows = query.persistent(false).fetch_all(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(rows)
    }

    /// The same, for a statement that returns one row.
    pub(super) async fn fetch_one(&self, query: Query<'_, Postgres, PgArguments>) -> Result<PgRow, sqlx::Error> {
        self.fetch_all(query).await?.pop().ok_or(sqlx::Error::RowNotFound)
    }
}

/// Runs a statement in a transaction of its own, which `begin` begins. The statement is not kept prepared, and still
/// needs the transaction: the driver sends text and parameters apart, and a pooler could pass them on to different
/// servers.
///
/// If this fails and the connection still works, the connection has no open transaction.
pub(super) async fn in_transaction(
    connection: &mut PgConnection,
    begin: &str,
    query: Query<'_, Postgres, PgArguments>,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let answer = async {
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection).await?;
        let rows = query.persistent(false).fetch_all(&mut *connection).await?;
        sqlx::raw_sql("COMMIT").execute(&mut *connection).await?;
        Ok(rows)
    };
    match answer.await {
        Ok(rows) => Ok(rows),
        // A connection that cannot even be rolled back is broken, whatever the first error was.
        Err(error) => sqlx::raw_sql("ROLLBACK").execute(connection).await.and(Err(error)),
    }
}
