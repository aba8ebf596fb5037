use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::store::{StoreError, StoreErrorKind};

const NO_TABLE: &str =
    "the table is missing or out of date: call PostgresStore::migrate, or run what PostgresStore::schema_sql says";

const TABLE_LOCKED: &str = "another session locks the whole table, as LOCK TABLE, ALTER TABLE, VACUUM FULL and CREATE INDEX without \
    CONCURRENTLY do; pg_locks shows which";

/// Why a statement was not answered. Everybody in its batch is told the same.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) remedy: Remedy,
    kind: StoreErrorKind,
    cause: Option<Cause>,
}

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Asking again: another transaction was in the way.
    Again,
    /// Asking again on another connection.
    Reconnect,
    /// Asking for fewer rows: one of them is to blame.
    Split,
    /// A lock was not to be had in time: that of one row, which another transaction is about to insert, or that of the whole
    /// table. The server does not tell which.
    Blocked,
    Nothing,
}

#[derive(Clone, Debug)]
struct Cause {
    advice: Option<&'static str>,
    error: Option<Arc<sqlx::Error>>,
}

impl Fault {
    pub(super) fn timed_out() -> Self {
        Self { remedy: Remedy::Nothing, kind: StoreErrorKind::TimedOut, cause: None }
    }

    /// What was [blocked](Remedy::Blocked) was so by a lock on the whole table, which fewer rows would not help.
    pub(super) fn of_the_table(self) -> Self {
        Self { remedy: Remedy::Nothing, ..self }.with_advice(TABLE_LOCKED)
    }

    /// The store itself does not do what was asked of it.
    pub(super) fn refused(advice: &'static str) -> Self {
        let cause = Some(Cause { advice: Some(advice), error: None });
        Self { remedy: Remedy::Nothing, kind: StoreErrorKind::Unavailable, cause }
    }

    /// The same, with a word on how to get out of it.
    pub(super) fn with_advice(mut self, advice: &'static str) -> Self {
        self.cause = self.cause.map(|cause| Cause { advice: Some(advice), ..cause });
        self
    }

    /// Whether time ran out.
    pub(super) fn is_late(&self) -> bool {
        self.kind == StoreErrorKind::TimedOut
    }

    /// Whether fewer rows could be answered.
    pub(super) fn is_of_a_row(&self) -> bool {
        matches!(self.remedy, Remedy::Split | Remedy::Blocked)
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
        let advice = matches!(code.as_deref(), Some("42P01" | "42703")).then_some(NO_TABLE);
        let (remedy, kind) = match &error {
            sqlx::Error::Database(_) => of_code(code.as_deref().unwrap_or_default()),
            sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => {
                (Remedy::Reconnect, StoreErrorKind::Unavailable)
            }
            sqlx::Error::PoolTimedOut => (Remedy::Nothing, StoreErrorKind::TimedOut),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => (Remedy::Split, StoreErrorKind::Corrupt),
            _ => (Remedy::Nothing, StoreErrorKind::Unavailable),
        };
        Self { remedy, kind, cause: Some(Cause { advice, error: Some(Arc::new(error)) }) }
    }
}

/// By the SQLSTATE.
fn of_code(code: &str) -> (Remedy, StoreErrorKind) {
    let remedy = match code {
        // Serialization failure, deadlock.
        "40001" | "40P01" => Remedy::Again,
        // The lock timeout.
        "55P03" => Remedy::Blocked,
        // The statement timeout, or an operator's cancel.
        "57014" => return (Remedy::Nothing, StoreErrorKind::TimedOut),
        // The server goes down or is a standby by now; a statement it prepared is gone or out of date.
        "57P01" | "57P02" | "57P03" | "25006" | "26000" | "0A000" => Remedy::Reconnect,
        _ if code.starts_with("08") => Remedy::Reconnect,
        // Data, constraints, limits of the server's.
        _ if ["22", "23", "54"].iter().any(|class| code.starts_with(class)) => Remedy::Split,
        _ => Remedy::Nothing,
    };
    (remedy, StoreErrorKind::Unavailable)
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match (fault.kind, fault.cause) {
            (StoreErrorKind::Unavailable, Some(cause)) => Self::unavailable(cause),
            (StoreErrorKind::Corrupt, Some(cause)) => Self::corrupt(cause),
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
