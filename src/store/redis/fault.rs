use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::PoolError;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::record::Unreadable;
use crate::store::{StoreError, StoreErrorKind};

/// Why Redis could not be asked, or what it said.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    TimedOut,
    NoConnection(NoConnection),
    Redis(RedisError),
    /// The connection is gone; what was asked may have been done or not.
    Broken(RedisError),
    Unreadable(Unreadable),
    NotReplicated {
        acknowledged: u32,
        wanted: u32,
    },
}

/// Why there is no connection. Whoever waits for the same one is told the same.
#[derive(Clone, Debug)]
pub(super) enum NoConnection {
    Refused(Arc<PoolError>),
    NotYet(Duration),
    /// It was there, and broke at once.
    Lost(RedisError),
    Abandoned,
}

impl Fault {
    /// What Redis 6.2 says to `SET` with both `NX` and `GET`.
    pub(super) fn is_syntax_error(&self) -> bool {
        matches!(self, Self::Redis(error) if error.detail().is_some_and(|words| words.contains("syntax error")))
    }

    pub(super) fn is_no_script(&self) -> bool {
        matches!(self, Self::Redis(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }
}

/// Whether the server is one that does not take writes any more: the primary is another by now, or will be.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown))
}

impl From<RedisError> for Fault {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() { Self::TimedOut } else { Self::Redis(error) }
    }
}

impl From<NoConnection> for Fault {
    fn from(why: NoConnection) -> Self {
        Self::NoConnection(why)
    }
}

impl From<Unreadable> for Fault {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable(unreadable)
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::TimedOut => Self::new(StoreErrorKind::TimedOut),
            Fault::NoConnection(why) => Self::unavailable(why),
            Fault::Redis(error) if error.code() == Some("WRONGTYPE") => Self::corrupt(error),
            Fault::Redis(error) | Fault::Broken(error) => Self::unavailable(error),
            Fault::Unreadable(unreadable) => Self::corrupt(unreadable),
            Fault::NotReplicated { acknowledged, wanted } => Self::unavailable(format!(
                "{acknowledged} of the {wanted} replicas asked for confirmed the write in time"
            )),
        }
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(_) => f.write_str("the pool could not give a connection"),
            Self::NotYet(time) => write!(
                f,
                "the pool gave no connection within {time:?}: all of its connections are in use, or the server does not answer"
            ),
            Self::Lost(_) => f.write_str("the connection broke as soon as it was there"),
            Self::Abandoned => f.write_str("the runtime that was connecting has ended"),
        }
    }
}

impl Error for NoConnection {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused(error) => Some(&**error),
            Self::Lost(error) => Some(error),
            Self::NotYet(_) | Self::Abandoned => None,
        }
    }
}
