use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, Value, from_redis_value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::RedisPool;
use super::error::{CommandError, NoConnection, Result};
use super::record::milliseconds;
use super::shared_connection::{Sending, SharedConnection};
use crate::lock::lock;

/// How many writes wait for replicas at a time, each on a connection that is made when it is first needed.
const CONNECTIONS: usize = 16;

/// Writes that wait for replicas, on connections of their own: on a shared one, `WAIT` would delay all other commands.
pub(super) struct Replicas {
    wanted: u32,
    wait: Cmd,
    time: Duration,
    permits: Semaphore,
    /// The connection that was last used is the next, so that a quiet receiver keeps few. At the end are those where
    /// the server may still be waiting for replicas, which would delay the next command.
    idle: Mutex<VecDeque<Arc<SharedConnection>>>,
}

impl Replicas {
    /// Waits for `wanted` replicas for `wait`, and for the server itself for `timeout`.
    pub(super) fn new(pool: &RedisPool, wanted: u32, wait: Duration, timeout: Duration) -> Self {
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(milliseconds(wait));
        let time = timeout.saturating_add(wait);
        let idle = (0..CONNECTIONS).map(|_| SharedConnection::new(pool.clone(), time)).collect();
        Self { wanted, wait: command, time, permits: Semaphore::new(CONNECTIONS), idle: Mutex::new(idle) }
    }

    pub(super) const fn wanted(&self) -> u32 {
        self.wanted
    }

    /// Returns the reply to `command`, and whether enough replicas have confirmed its write.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<(Value, Result<(), CommandError>)> {
        let reserved = timeout(self.time, self.reserve()).await.ok().flatten();
        let mut reserved = reserved.ok_or(NoConnection::NotYet(self.time))?;
        let replies = reserved.connection.ask(command, Some(&self.wait), Sending::Repeatable).await;
        reserved.is_answered = !matches!(replies, Err(CommandError::TimedOut));
        let (reply, acknowledged) = replies?;
        let acknowledged = acknowledged.and_then(|count| from_redis_value::<u32>(count).ok()).unwrap_or(0);
        let confirmed = match acknowledged >= self.wanted {
            true => Ok(()),
            false => Err(CommandError::NotReplicated { acknowledged, wanted: self.wanted }),
        };
        Ok((reply, confirmed))
    }

    /// There are as many connections as permits.
    async fn reserve(&self) -> Option<Reserved<'_>> {
        let permit = self.permits.acquire().await.ok()?;
        let connection = lock(&self.idle).pop_front()?;
        Some(Reserved { replicas: self, connection, is_answered: false, _permit: permit })
    }
}

/// A connection that no other caller uses until this is dropped.
struct Reserved<'a> {
    replicas: &'a Replicas,
    connection: Arc<SharedConnection>,
    /// False as well if the caller left before the reply.
    is_answered: bool,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        // The permit is a field, and is dropped after this.
        let (mut idle, connection) = (lock(&self.replicas.idle), self.connection.clone());
        if self.is_answered { idle.push_front(connection) } else { idle.push_back(connection) }
    }
}
