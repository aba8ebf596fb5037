use std::error::Error;
use std::fmt;

use crate::error::with_causes;

type Source = Box<dyn Error + Send + Sync>;

/// An error of the backend. Whether the operation took effect is unknown, unless the kind says otherwise.
///
/// It is never about a claim being taken or lost; those are answers ([`Claim`](super::Claim), [`Hold`](super::Hold)).
///
/// `Debug` shows the message with those of all causes, so that a `main` that returns the error prints what is wrong:
///
/// ```
/// use tower_webhook::store::StoreError;
///
/// let error = StoreError::unavailable("connection refused");
/// assert_eq!(format!("{error:?}"), "the store is unavailable: connection refused");
/// ```
pub struct StoreError {
    kind: StoreErrorKind,
    source: Option<Source>,
}

/// The kinds of store errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The backend could not be reached, or refused the operation.
    Unavailable,
    /// No answer within the deadline; whether the operation took effect is unknown.
    TimedOut,
    /// A transaction holds the record, and has neither been committed nor rolled back yet.
    Locked,
    /// There is no room for another claim.
    Full,
    /// The backend returned data that this store did not write.
    Corrupt,
    /// The circuit breaker is open: the backend failed repeatedly and was not asked. Nothing took effect.
    CircuitOpen,
}

impl StoreError {
    /// An error without a cause.
    #[must_use]
    pub const fn new(kind: StoreErrorKind) -> Self {
        Self { kind, source: None }
    }

    /// The backend failed with `source`.
    pub fn unavailable(source: impl Into<Source>) -> Self {
        Self { kind: StoreErrorKind::Unavailable, source: Some(source.into()) }
    }

    /// The backend returned data that this store did not write.
    pub fn corrupt(source: impl Into<Source>) -> Self {
        Self { kind: StoreErrorKind::Corrupt, source: Some(source.into()) }
    }

    /// An error of this kind, because of `source`.
    #[cfg(feature = "postgres")]
    pub(crate) fn because(kind: StoreErrorKind, source: impl Into<Source>) -> Self {
        Self { kind, source: Some(source.into()) }
    }

    /// Whether the operation may have taken effect.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        !matches!(self.kind, StoreErrorKind::Full | StoreErrorKind::Locked | StoreErrorKind::CircuitOpen)
    }

    /// The kind of the error.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store is unavailable",
            StoreErrorKind::TimedOut => "the store did not answer within the deadline",
            StoreErrorKind::Locked => "a transaction that has not ended holds the record",
            StoreErrorKind::Full => "the store is full: raise its capacity or shorten the retention",
            StoreErrorKind::Corrupt => "the store holds a record that this crate did not write",
            StoreErrorKind::CircuitOpen => {
                "the circuit breaker is open: the store failed repeatedly and is not asked for a moment; its earlier \
                errors say why"
            }
        })
    }
}

/// Shows the messages of the error and of its causes: they are what `unwrap`, and a `main` that returns the error, print.
impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}
