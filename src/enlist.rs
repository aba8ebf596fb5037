//! Exactly-once effects: the completion is part of the handler's own transaction.
//!
//! If the store is in the handler's database, effect and completion are committed together, or neither is. A crash in
//! between, a second delivery or a stale handler that resumes late can neither repeat the effect nor lose it.
//!
#![cfg_attr(feature = "postgres", doc = "```no_run")]
#![cfg_attr(not(feature = "postgres"), doc = "```ignore")]
//! use axum::{Router, extract::State, routing::post};
//! use sqlx::PgPool;
//! use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme, store::PostgresStore};
//!
//! async fn on_event(State(pool): State<PgPool>, event: WebhookEvent) -> Result<(), HandlerError> {
//!     let mut tx = pool.begin().await?;
//!     // First: it fails for a stale handler before anything is done, and locks the record until the commit.
//!     event.complete_in(&mut *tx).await?;
//!     sqlx::query("UPDATE accounts SET balance = balance + 1").execute(&mut *tx).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//!
//! # async fn app(pool: PgPool) -> Result<Router, Box<dyn std::error::Error>> {
//! let store = PostgresStore::new(pool.clone());
//! let app = Router::new()
//!     .route("/webhooks", post(on_event))
//!     .layer(WebhookLayer::new(scheme::stripe("whsec_secret")?, store))
//!     .with_state(pool);
//! # Ok(app)
//! # }
//! ```
//!
//! The call only *enlists* the completion. Whatever the handler returns, the layer asks the store how the transaction
//! ended:
//!
//! | the record is | because of the transaction | the sender gets |
//! |---|---|---|
//! | completed under this token | it was committed | the handler's response, even an error: its retry gets 200 |
//! | still running under it | it was not committed | the handler's response, but 500 for a success; the retry runs again |
//! | locked | it is still open somewhere | 503; the lease expires |
//! | another delivery's | this delivery has lost its claim | 503 |
//!
//! After a rollback it may be called again, in a new transaction. From the first call on, the lease is no longer
//! renewed, since a renewal would collide with the transaction. The lock on the row takes its place.
//!
//! A SQLite handler begins with `pool.begin_with("BEGIN IMMEDIATE")`, so that it waits for the lock at its beginning
//! and not in the middle. It leaves `synchronous` at `FULL`, since its own connection makes the commit durable. Effects
//! beyond the database go into an outbox table in the same transaction.
//!
//! Other drivers run the statement themselves: [`WebhookEvent::enlist`](crate::WebhookEvent::enlist).

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::WebhookEvent;
use crate::store::{COMMITTED, ClaimToken, Dialect};

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::sqlx_connection::Connection;

/// A completion to run in a transaction: a statement and its parameters, in their order.
///
/// It must change exactly one row. If it changes none, another delivery holds the claim: roll back.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CompletionStatement<'a> {
    /// The SQL dialect of the statement.
    pub dialect: Dialect,
    /// The statement.
    pub sql: &'a str,
    /// The first parameter: the event's key, as text.
    pub key: &'a str,
    /// The second parameter: the claim's token, as 16 bytes.
    pub token: ClaimToken,
    /// The third parameter: the summary of the outcome that is stored, as text.
    pub summary: &'a str,
    /// The fourth parameter: how long duplicates are recognised, in milliseconds, as a 64-bit integer.
    pub retention_ms: i64,
    /// Whether the driver may keep the statement prepared on its connection. `false` behind a transaction pooler.
    pub prepared: bool,
}

impl<T> WebhookEvent<T> {
    /// Enlists the completion in the handler's own transaction: effect and completion are committed together. Call it
    /// first in the transaction, with `&mut tx` or `&mut *tx`. See [`enlist`](crate::enlist) for the consequences.
    ///
    /// # Errors
    ///
    /// If another delivery holds the claim by now, if `connection` cannot reach the store's database, or if the
    /// statement fails. Roll the transaction back, and return the error: it is transient.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub async fn complete_in<C: Connection>(&self, connection: &mut C) -> Result<(), EnlistError> {
        let state = self.claim().enlisting().ok_or(EnlistErrorKind::Unsupported)?;
        if state.enlistment.dialect() != C::DIALECT {
            return Err(EnlistErrorKind::OtherDatabase.into());
        }
        match connection.run(&self.enlist().await?).await {
            Ok(1) => Ok(()),
            Ok(_) => {
                self.claim().mark_lost();
                Err(EnlistErrorKind::ClaimLost.into())
            }
            Err(error) => Err(EnlistError::database(error)),
        }
    }

    /// Returns the statement to run in the transaction, for other database drivers. From this call on, the layer
    /// counts the completion as enlisted, so the statement must be run: otherwise the event is released.
    ///
    /// # Errors
    ///
    /// If the store has no such statement, or the event has no id.
    pub async fn enlist(&self) -> Result<CompletionStatement<'_>, EnlistError> {
        let claim = self.claim();
        let state = claim.enlisting().ok_or(EnlistErrorKind::Unsupported)?;
        state.enlist().await;
        Ok(CompletionStatement {
            dialect: state.enlistment.dialect(),
            sql: state.enlistment.sql(),
            key: claim.key.as_str(),
            token: claim.token,
            summary: COMMITTED,
            retention_ms: milliseconds(state.retention),
            prepared: state.enlistment.is_prepared(),
        })
    }
}

/// Rounds up: a retention of less than a millisecond becomes one millisecond.
fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX)
}

type Source = Box<dyn Error + Send + Sync>;

/// A completion could not be enlisted. Roll back, and return the error with `?`.
#[derive(Debug)]
pub struct EnlistError {
    kind: EnlistErrorKind,
    source: Option<Source>,
}

/// The reason why a completion could not be enlisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EnlistErrorKind {
    /// The store is not a database that handlers can use, or the event has no id.
    Unsupported,
    /// The store is in another kind of database than the connection.
    OtherDatabase,
    /// Another delivery holds the claim by now, or it is already completed.
    ClaimLost,
    /// The statement failed.
    Database,
}

impl EnlistError {
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    fn database(source: impl Into<Source>) -> Self {
        Self { kind: EnlistErrorKind::Database, source: Some(source.into()) }
    }

    /// The reason.
    #[must_use]
    pub const fn kind(&self) -> EnlistErrorKind {
        self.kind
    }
}

impl From<EnlistErrorKind> for EnlistError {
    fn from(kind: EnlistErrorKind) -> Self {
        Self { kind, source: None }
    }
}

impl fmt::Display for EnlistError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            EnlistErrorKind::Unsupported => {
                "the event's completion cannot be enlisted: it has no id, or its store is neither a PostgresStore nor \
                 a SqliteStore"
            }
            EnlistErrorKind::OtherDatabase => {
                "the event's store is in another kind of database than this connection: both must be in the same one"
            }
            EnlistErrorKind::ClaimLost => {
                "the claim is not held by this delivery: another one took it over, it is completed already, or the \
                 store is in another database than this connection; roll back"
            }
            EnlistErrorKind::Database => "the completion could not be enlisted; roll back",
        })
    }
}

impl Error for EnlistError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod sqlx_connection {
    use std::future::Future;

    use super::CompletionStatement;
    use crate::store::Dialect;

    /// A connection in whose transaction a completion can be enlisted: sqlx's for Postgres and for SQLite, or its
    /// `Transaction`.
    #[diagnostic::on_unimplemented(
        message = "a completion cannot be enlisted in `{Self}`",
        label = "neither a transaction nor a connection of sqlx, for Postgres or SQLite",
        note = "begin a transaction with `let mut tx = pool.begin().await?`, and pass `&mut tx`",
        note = "for another database driver, run the statement of `WebhookEvent::enlist` in its transaction"
    )]
    pub trait Connection: sealed::Run + Send {}

    mod sealed {
        use super::{CompletionStatement, Dialect, Future};

        pub trait Run {
            const DIALECT: Dialect;

            /// Runs the statement and says how many rows it changed.
            fn run(
                &mut self,
                statement: &CompletionStatement<'_>,
            ) -> impl Future<Output = Result<u64, sqlx::Error>> + Send;
        }
    }

    macro_rules! connection {
        ($connection:ty, $dialect:expr) => {
            impl Connection for $connection {}

            impl sealed::Run for $connection {
                const DIALECT: Dialect = $dialect;

                async fn run(&mut self, statement: &CompletionStatement<'_>) -> Result<u64, sqlx::Error> {
                    // Safe: the store generated it, without any input from outside.
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

    impl<D: sqlx::Database<Connection: Connection>> Connection for sqlx::Transaction<'_, D> {}

    impl<D: sqlx::Database<Connection: Connection>> sealed::Run for sqlx::Transaction<'_, D> {
        const DIALECT: Dialect = <D::Connection as sealed::Run>::DIALECT;

        async fn run(&mut self, statement: &CompletionStatement<'_>) -> Result<u64, sqlx::Error> {
            sealed::Run::run(&mut **self, statement).await
        }
    }
}
