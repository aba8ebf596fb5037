use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool_redis::PoolError;
use deadpool_redis::redis::{ErrorKind, RedisError, ServerErrorKind};

use super::record::Unreadable;
use crate::store::{StoreError, StoreErrorKind};

pub(super) type Result<T, E = CommandError> = std::result::Result<T, E>;

/// Why a command has no reply that the store can use.
#[derive(Clone, Debug)]
pub(super) enum CommandError {
    TimedOut,
    NoConnection(NoConnection),
    Redis(RedisError),
    /// The connection broke. The server may have run the command or not.
    Broken(RedisError),
    Unreadable(Unreadable),
    /// The keys of an inbox would be on several nodes of a Cluster.
    SeveralSlots,
    NotReplicated {
        acknowledged: u32,
        wanted: u32,
    },
}

/// Why there is no connection. All callers that wait for the same attempt get the same error.
#[derive(Clone, Debug)]
pub(super) enum NoConnection {
    Refused(Arc<PoolError>),
    NotYet(Duration),
    /// The connection was made, and broke at once.
    Lost(RedisError),
    Abandoned,
}

impl NoConnection {
    /// Whether the attempt took longer than the timeout of the pool, or of its client: one second by default.
    pub(super) fn is_timeout(&self) -> bool {
        match self {
            Self::Refused(error) => match &**error {
                PoolError::Timeout(_) => true,
                PoolError::Backend(error) => error.is_timeout(),
                _ => false,
            },
            Self::NotYet(_) => true,
            Self::Lost(_) | Self::Abandoned => false,
        }
    }
}

impl CommandError {
    /// Whether the server refused the syntax, as Redis 6.2 refuses `SET` with both `NX` and `GET`.
    pub(super) fn is_syntax_error(&self) -> bool {
        self.is_redis(|error| error.detail().is_some_and(|words| words.contains("syntax error")))
    }

    /// Whether the server refused the first line of a script: Redis 6 cannot compile it, others name the line.
    pub(super) fn refuses_flags(&self) -> bool {
        let is_about_flags = |words: &str| words.contains("compiling script") || words.contains("shebang");
        self.is_redis(|error| error.detail().is_some_and(is_about_flags))
    }

    /// Whether the server is at its `maxmemory`.
    pub(super) fn is_out_of_memory(&self) -> bool {
        self.is_redis(|error| has_code(error, "OOM"))
    }

    pub(super) fn is_no_script(&self) -> bool {
        self.is_redis(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }

    /// Whether the server may have run the command: only its reply is lost.
    pub(super) fn is_reply_lost(&self) -> bool {
        match self {
            Self::TimedOut | Self::Broken(_) => true,
            // The client of a Cluster reports the broken connection to one node like this.
            Self::Redis(error) => error.is_io_error(),
            _ => false,
        }
    }

    fn is_redis(&self, is: impl FnOnce(&RedisError) -> bool) -> bool {
        matches!(self, Self::Redis(error) if is(error))
    }
}

/// Whether the server takes no writes any more: another one is the primary by now, or will be.
pub(super) fn is_demoted(error: &RedisError) -> bool {
    has_code(error, "READONLY") || has_code(error, "MASTERDOWN")
}

/// Whether the error has this code. Before Redis 7, the code of an error in a script is among the words.
fn has_code(error: &RedisError, code: &str) -> bool {
    let of_script = error.detail().filter(|words| words.starts_with("Error running script"));
    error.code() == Some(code)
        || of_script.is_some_and(|words| words.split_whitespace().any(|word| word.trim_start_matches('-') == code))
}

fn is_unreachable(error: &PoolError) -> bool {
    matches!(error, PoolError::Backend(error) if error.is_io_error() && !error.is_timeout())
}

impl From<RedisError> for CommandError {
    fn from(error: RedisError) -> Self {
        if error.is_timeout() { Self::TimedOut } else { Self::Redis(error) }
    }
}

impl From<NoConnection> for CommandError {
    fn from(why: NoConnection) -> Self {
        Self::NoConnection(why)
    }
}

impl From<Unreadable> for CommandError {
    fn from(unreadable: Unreadable) -> Self {
        Self::Unreadable(unreadable)
    }
}

impl From<CommandError> for StoreError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::TimedOut => Self::new(StoreErrorKind::TimedOut),
            CommandError::NoConnection(why) => Self::unavailable(why),
            CommandError::Redis(error) if has_code(&error, "WRONGTYPE") => Self::corrupt(error),
            CommandError::Redis(error) | CommandError::Broken(error) => Self::unavailable(error),
            CommandError::Unreadable(unreadable) => Self::corrupt(unreadable),
            CommandError::SeveralSlots => Self::unavailable(
                "an inbox on a Cluster needs all of its keys in one slot: give the store a prefix with a name in \
                 braces, such as \"{webhooks}:\"",
            ),
            CommandError::NotReplicated { acknowledged, wanted } => Self::unavailable(format!(
                "{acknowledged} of the {wanted} replicas asked for confirmed the write in time"
            )),
        }
    }
}

impl fmt::Display for NoConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) if is_unreachable(error) => {
                f.write_str("the server cannot be reached: check that it runs, and the address that the pool has")
            }
            Self::Refused(_) => f.write_str("the pool could not give a connection"),
            Self::NotYet(time) => write!(
                f,
                "the pool gave no connection within {time:?}: all of its connections are in use, or the server does \
                 not answer"
            ),
            Self::Lost(_) => f.write_str("the connection broke as soon as it was made"),
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

#[cfg(test)]
mod tests {
    use deadpool_redis::redis::parse_redis_value;

    use super::*;

    /// The words of Redis 6.2 about an error in a script, up to the error itself.
    const IN_SCRIPT: &str =
        "ERR Error running script (call to f_c5b0ae2d7a4f11ba6dcd2e6b2e0f6a5d4d1c3b2a): @user_script:3:";

    fn error(line: &str) -> RedisError {
        let reply = parse_redis_value(format!("-{line}\r\n").as_bytes()).expect("a reply");
        reply.extract_error().expect_err("an error")
    }

    #[test]
    fn demoted_server_is_known_by_the_errors_of_commands_and_of_scripts() {
        let read_only = "READONLY You can't write against a read only replica.";
        let master_down = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
        for line in [read_only, master_down] {
            let old = format!("{IN_SCRIPT} @user_script: 3: -{line} ");
            let new = format!("{line} script: c5b0ae2d7a4f11ba6dcd2e6b2e0f6a5d4d1c3b2a, on @user_script:3.");
            for line in [line, &old, &new] {
                assert!(is_demoted(&error(line)), "{line}");
                assert_eq!(StoreError::from(CommandError::from(error(line))).kind(), StoreErrorKind::Unavailable);
            }
        }
    }

    #[test]
    fn key_of_another_type_is_corrupt_for_commands_and_for_scripts() {
        let line = "WRONGTYPE Operation against a key holding the wrong kind of value";
        for line in
            [line.to_owned(), format!("{IN_SCRIPT} {line} "), format!("{line} script: c5b0, on @user_script:1.")]
        {
            assert_eq!(StoreError::from(CommandError::from(error(&line))).kind(), StoreErrorKind::Corrupt, "{line}");
            assert!(!is_demoted(&error(&line)));
        }
    }

    #[test]
    fn code_in_somebody_elses_words_means_nothing() {
        let line = "ERR unknown command 'SET', with args beginning with: 'READONLY' 'WRONGTYPE' READONLY WRONGTYPE ";
        assert!(!is_demoted(&error(line)));
        assert_eq!(StoreError::from(CommandError::from(error(line))).kind(), StoreErrorKind::Unavailable);
    }
}
