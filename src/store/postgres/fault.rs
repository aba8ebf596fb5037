//! Why a statement failed, what to do about it, and the error that its callers get.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::store::{StoreError, StoreErrorKind};

const NO_TABLE: &str = "the table is missing or out of date: call PostgresStore::migrate, or run the statements of \
    PostgresStore::schema_sql";

const TABLE_LOCKED: &str = "another session locks the whole table, as LOCK TABLE, ALTER TABLE, VACUUM FULL and CREATE \
    INDEX without CONCURRENTLY do; pg_locks shows which";

const UNREACHABLE: &str = "the server cannot be reached: check that it runs, and the address that the pool has";

const NO_CONNECTION: &str = "the pool gave no connection in time: the server cannot be reached at the address that the \
    pool has, or all of the pool's connections are in use";

/// Why a statement failed. All callers in its batch get the same fault.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) remedy: Remedy,
    kind: StoreErrorKind,
    cause: Option<Cause>,
}

/// The next step after a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Repeat the statement: it conflicted with another transaction.
    Repeat,
    /// Repeat it on another connection.
    Reconnect,
    /// Split the batch: one of its rows is to blame.
    Split,
    /// Find out whether the whole table is locked: the server does not tell. If it is not, another transaction holds
    /// one row, or is about to insert it.
    CheckTableLock,
    /// Report the fault to the callers.
    GiveUp,
}

#[derive(Clone, Debug)]
struct Cause {
    advice: Option<&'static str>,
    error: Option<Arc<sqlx::Error>>,
}

impl Fault {
    pub(super) fn timed_out() -> Self {
        Self { remedy: Remedy::GiveUp, kind: StoreErrorKind::TimedOut, cause: None }
    }

    /// Says that the [lock](Remedy::CheckTableLock) which was not granted is one on the whole table. Fewer rows would
    /// not help.
    pub(super) fn into_table_locked(self) -> Self {
        Self { remedy: Remedy::GiveUp, ..self }.with_advice(TABLE_LOCKED)
    }

    /// The store itself refused to run the statement.
    pub(super) fn refused(advice: &'static str) -> Self {
        let cause = Some(Cause { advice: Some(advice), error: None });
        Self { remedy: Remedy::GiveUp, kind: StoreErrorKind::Unavailable, cause }
    }

    /// Adds advice on how to resolve the fault.
    pub(super) fn with_advice(mut self, advice: &'static str) -> Self {
        self.cause = self.cause.map(|cause| Cause { advice: Some(advice), ..cause });
        self
    }

    /// Whether the deadline passed.
    pub(super) fn is_late(&self) -> bool {
        self.kind == StoreErrorKind::TimedOut
    }

    /// Whether the statement could succeed with fewer rows: one of them is to blame, or locked.
    pub(super) fn may_pass_with_fewer_rows(&self) -> bool {
        matches!(self.remedy, Remedy::Split | Remedy::CheckTableLock)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        let advice = match &error {
            sqlx::Error::Database(_) => matches!(code.as_deref(), Some("42P01" | "42703")).then_some(NO_TABLE),
            sqlx::Error::Io(error) => is_unreachable(error).then_some(UNREACHABLE),
            sqlx::Error::PoolTimedOut => Some(NO_CONNECTION),
            _ => None,
        };
        let (remedy, kind) = match &error {
            sqlx::Error::Database(_) => of_code(code.as_deref().unwrap_or_default()),
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
                (Remedy::Reconnect, StoreErrorKind::Unavailable)
            }
            sqlx::Error::PoolTimedOut => (Remedy::GiveUp, StoreErrorKind::TimedOut),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => (Remedy::Split, StoreErrorKind::Corrupt),
            _ => (Remedy::GiveUp, StoreErrorKind::Unavailable),
        };
        Self { remedy, kind, cause: Some(Cause { advice, error: Some(Arc::new(error)) }) }
    }
}

/// Whether a connection could not be made. (A name that is not known has no kind of its own.)
fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, ConnectionRefused, HostUnreachable, NetworkUnreachable, NotFound};
    let is_unknown_name = || error.to_string().contains("failed to lookup address");
    matches!(error.kind(), AddrNotAvailable | ConnectionRefused | HostUnreachable | NetworkUnreachable | NotFound)
        || is_unknown_name()
}

/// Tells the remedy by the SQLSTATE.
fn of_code(code: &str) -> (Remedy, StoreErrorKind) {
    let remedy = match code {
        // Serialization failure, deadlock.
        "40001" | "40P01" => Remedy::Repeat,
        // The lock timeout.
        "55P03" => Remedy::CheckTableLock,
        // The statement timeout, or an operator's cancel.
        "57014" => return (Remedy::GiveUp, StoreErrorKind::TimedOut),
        // The server is shutting down or has become a standby; a prepared statement is gone or out of date.
        "57P01" | "57P02" | "57P03" | "25006" | "26000" | "0A000" => Remedy::Reconnect,
        _ if code.starts_with("08") => Remedy::Reconnect,
        // Data, constraints, and limits of the server.
        _ if ["22", "23", "54"].iter().any(|class| code.starts_with(class)) => Remedy::Split,
        _ => Remedy::GiveUp,
    };
    (remedy, StoreErrorKind::Unavailable)
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match (fault.kind, fault.cause) {
            (StoreErrorKind::Unavailable, Some(cause)) => Self::unavailable(cause),
            (StoreErrorKind::Corrupt, Some(cause)) => Self::corrupt(cause),
            (kind, Some(cause)) if cause.advice.is_some() => Self::because(kind, cause),
            (kind, _) => Self::new(kind),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.advice, &self.error) {
            (Some(advice), _) => f.write_str(advice),
            (None, Some(error)) => error.fmt(f),
            (None, None) => Ok(()),
        }
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let error = self.error.as_deref()?;
        match self.advice {
            Some(_) => Some(error),
            None => error.source(),
        }
    }
}
