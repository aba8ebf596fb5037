//! Why a statement failed, and the error that its callers get.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::store::{StoreError, StoreErrorKind};

/// SQLite's primary result codes for "not now": SQLITE_BUSY, SQLITE_LOCKED, and SQLITE_PROTOCOL, which is a lost race
/// for a lock.
const NOT_NOW: [i32; 3] = [5, 6, 15];

/// SQLITE_READONLY.
const READ_ONLY: i32 = 8;

/// Why a batch could not be written, or not even read.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Another connection holds the lock, or keeps on writing the same rows. The caller can ask again.
    Locked,
    /// The same, after a part of the batch was written; which part is not known. The caller can ask again.
    HalfWritten,
    /// The file, the disk, or the connection failed. The connection is not used again.
    Broken(Arc<dyn Error + Send + Sync>),
}

/// The file that could not be opened, and why.
#[derive(Debug)]
struct Unopened {
    path: Box<Path>,
    advice: &'static str,
    source: Arc<dyn Error + Send + Sync>,
}

/// The database can be read, and not written.
#[derive(Debug)]
struct ReadOnly(sqlx::Error);

impl Fault {
    /// The same fault in a batch of which a part may have been written before.
    pub(super) fn half_way(self) -> Self {
        match self {
            Self::Locked => Self::HalfWritten,
            fault => fault,
        }
    }

    /// The same fault when the file at `path` was opened.
    pub(super) fn on_opening(self, path: &Path) -> Self {
        match self {
            Self::Locked | Self::HalfWritten => self,
            Self::Broken(source) => {
                let advice = source.downcast_ref().and_then(primary_code).map_or("", advice_on_opening);
                Self::Broken(Arc::new(Unopened { path: path.into(), advice, source }))
            }
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        match primary_code(&error) {
            Some(code) if NOT_NOW.contains(&code) => Self::Locked,
            Some(READ_ONLY) => Self::Broken(Arc::new(ReadOnly(error))),
            _ => Self::Broken(Arc::new(error)),
        }
    }
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// The remedy for SQLITE_CANTOPEN and SQLITE_NOTADB.
fn advice_on_opening(code: i32) -> &'static str {
    match code {
        14 => ": its directory must be there, and this process must be able to write it",
        26 => ": the file is something else, and the store needs one of its own",
        _ => "",
    }
}

impl From<&Fault> for StoreError {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Locked => Self::new(StoreErrorKind::Locked),
            // Not `Locked`, which says that nothing took effect: a caller that claimed has to release its token.
            Fault::HalfWritten => Self::new(StoreErrorKind::TimedOut),
            Fault::Broken(error) => Self::unavailable(error.clone()),
        }
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        (&fault).into()
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the SQLite database {} could not be opened{}", self.path.display(), self.advice)
    }
}

impl Error for Unopened {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}

impl fmt::Display for ReadOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the database cannot be written: this process must be able to write the file and its directory")
    }
}

impl Error for ReadOnly {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}
