use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::store::{StoreError, StoreErrorKind};

/// Why a batch could not be written, or not even read.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// Another connection holds the lock, or keeps on writing the same rows. The same can be asked again.
    Locked,
    /// The same, after a part of the batch was written: whose, nobody has read. The same can be asked again.
    HalfWritten,
    /// The file, the disk, or the connection. The connection is not used again.
    Broken(Arc<dyn Error + Send + Sync>),
}

/// SQLite's primary result codes for "not now": SQLITE_BUSY, SQLITE_LOCKED, and SQLITE_PROTOCOL, which is a lost race for a lock.
const NOT_NOW: [i32; 3] = [5, 6, 15];

/// Which file could not be opened.
#[derive(Debug)]
struct Unopened {
    path: Box<Path>,
    source: Arc<dyn Error + Send + Sync>,
}

impl Fault {
    /// The same fault, to a batch of which a part was written before.
    pub(super) fn half_way(self) -> Self {
        match self {
            Self::Locked => Self::HalfWritten,
            fault => fault,
        }
    }

    /// The same fault, in opening this file.
    pub(super) fn opening(self, path: &Path) -> Self {
        match self {
            Self::Locked | Self::HalfWritten => self,
            Self::Broken(source) => Self::Broken(Arc::new(Unopened { path: path.into(), source })),
        }
    }
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Self {
        let code = error.as_database_error().and_then(|error| error.code()?.parse::<i32>().ok());
        match code {
            Some(code) if NOT_NOW.contains(&(code & 0xff)) => Self::Locked,
            _ => Self::Broken(Arc::new(error)),
        }
    }
}

impl From<&Fault> for StoreError {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Locked => Self::new(StoreErrorKind::Locked),
            // Not `Locked`, which says that nothing took effect: whoever claimed has to have the token released.
            Fault::HalfWritten => Self::new(StoreErrorKind::TimedOut),
            Fault::Broken(error) => Self::unavailable(error.clone()),
        }
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the SQLite database {} could not be opened", self.path.display())
    }
}

impl Error for Unopened {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
