use std::error::Error;
use std::fmt;

type Source = Box<dyn Error + Send + Sync>;

/// Why a completion could not be enlisted. Roll back, and return it with `?`.
#[derive(Debug)]
pub struct EnlistError {
    kind: EnlistErrorKind,
    source: Option<Source>,
}

/// What kept a completion from being enlisted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EnlistErrorKind {
    /// The store is no database of the handler's, or the event has no id to be remembered by.
    Unsupported,
    /// The store is in a database of another kind than the connection.
    OtherDatabase,
    /// The claim is another delivery's by now, or completed already.
    ClaimLost,
    /// The statement failed.
    Database,
}

impl EnlistError {
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(super) fn database(source: impl Into<Source>) -> Self {
        Self { kind: EnlistErrorKind::Database, source: Some(source.into()) }
    }

    /// What was wrong.
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
                "the event's completion cannot be enlisted: it has no id, or its store is neither a PostgresStore nor a SqliteStore"
            }
            EnlistErrorKind::OtherDatabase => {
                "the event's store is in another kind of database than this connection: both must be in the same one"
            }
            EnlistErrorKind::ClaimLost => {
                "the claim is not held by this delivery: another one took it over, it is completed already, or the store is in \
                 another database than this connection; roll back"
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
