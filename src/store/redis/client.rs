//! Which connection a command goes by, and which key an event has.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, FromRedisValue, RedisError, ToRedisArgs, Value, from_redis_value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use xxhash_rust::xxh3::xxh3_64;

use super::RedisPool;
use super::error::{CommandError, NoConnection, Result};
use super::record::milliseconds;
use super::scripts::{Flags, Script};
use super::shared_connection::{Sending, SharedConnection};
use crate::EventKey;
use crate::lock::lock;

/// The keys of an inbox, behind the store's prefix. Those of events begin with a digit or a brace.
pub(super) const EVENTS: &str = "inbox:events";
const REQUEST: &str = "inbox:request:";

/// How many writes wait for replicas at a time, each on a connection that is made when it is first needed.
const REPLICATED_WRITES: usize = 16;

/// Sends commands and scripts.
pub(super) struct Client {
    pub(super) prefix: Box<str>,
    pub(super) timeout: Duration,
    pub(super) connections: Box<[Arc<SharedConnection>]>,
    pub(super) replicas: Option<Replicas>,
    /// For commands that are sent because one of the others may lead nowhere.
    spare: Arc<SharedConnection>,
    is_cluster: bool,
    /// The server does not know the flags of scripts.
    refuses_flags: AtomicBool,
}

/// How a command is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// By the connection of its key, and again if that breaks: for reads, and for changes that are the same if they are
    /// made twice, as those are that the caller's token decides about.
    Repeatable,
    /// By the connection of its key, and not again: an operator's change that is made again finds nothing to change,
    /// and would report zero events.
    Once,
    /// As [`Once`](Self::Once), and a script in one step: a renewal that is repeated, because the server does not have
    /// its script or because the connection broke, would follow a release that was sent meanwhile, and bring the claim
    /// back.
    InOneStep,
    /// As [`Once`](Self::Once), and the reply is waited for beyond the timeout: the caller has to know what was done.
    AwaitLateReply,
    /// By the connections that wait for replicas, if any are to confirm writes; else as
    /// [`Repeatable`](Self::Repeatable).
    Replicated,
    /// By a connection of its own, and again if that breaks: the connection of the key may lead nowhere.
    Spare,
}

/// A server's reply, and whether enough replicas have confirmed the write.
pub(super) struct Reply {
    value: Value,
    confirmed: Result<()>,
}

impl Reply {
    pub(super) fn read<T: FromRedisValue>(self) -> Result<T> {
        Ok(self.into_parts()?.0)
    }

    /// Reads the value, and returns whether it is confirmed as well.
    pub(super) fn into_parts<T: FromRedisValue>(self) -> Result<(T, Result<()>)> {
        Ok((from_redis_value(self.value).map_err(RedisError::from)?, self.confirmed))
    }
}

impl Client {
    pub(super) fn new(
        pool: &RedisPool,
        prefix: Box<str>,
        connections: usize,
        timeout: Duration,
        replicas: Option<Replicas>,
    ) -> Self {
        Self {
            prefix,
            timeout,
            connections: (0..connections).map(|_| SharedConnection::new(pool.clone(), timeout)).collect(),
            replicas,
            spare: SharedConnection::new(pool.clone(), timeout),
            is_cluster: pool.is_cluster(),
            refuses_flags: AtomicBool::new(false),
        }
    }

    /// Runs a script: by its hash, or in full on a server that does not have it; with its flags, or without them on a
    /// server that turns out not to know them.
    pub(super) async fn run<A: ToRedisArgs + Sync>(
        &self,
        mode: Mode,
        script: &Script,
        key: &str,
        arguments: &[A],
    ) -> Result<Reply> {
        let mut flags = if self.refuses_flags() { Flags::Unknown } else { Flags::Known };
        let mut by_hash = mode != Mode::InOneStep;
        loop {
            let command = match by_hash {
                true => script.by_hash(flags, key, arguments),
                false => script.in_full(flags, key, arguments),
            };
            match self.ask(mode, key, &command).await {
                Err(error) if by_hash && error.is_no_script() => by_hash = false,
                Err(error) if flags == Flags::Known && script.has_flags() && error.refuses_flags() => {
                    self.omit_flags();
                    // A renewal is not repeated. The claim before it has found out about Redis 6 already; this is
                    // another kind of server.
                    if mode == Mode::InOneStep {
                        return Err(error);
                    }
                    (flags, by_hash) = (Flags::Unknown, true);
                }
                reply => return reply,
            }
        }
    }

    /// Sends a command. On a Cluster, the client finds the node by the command itself.
    pub(super) async fn ask(&self, mode: Mode, key: &str, command: &Cmd) -> Result<Reply> {
        if let (Mode::Replicated, Some(replicas)) = (mode, &self.replicas) {
            return replicas.ask(command).await;
        }
        let connection = if mode == Mode::Spare { &self.spare } else { self.connection(key) };
        let sending = match mode {
            Mode::Repeatable | Mode::Replicated | Mode::Spare => Sending::Repeatable,
            Mode::Once | Mode::InOneStep => Sending::Once,
            Mode::AwaitLateReply => Sending::AwaitLateReply,
        };
        let (value, _) = connection.ask(command, None, sending).await?;
        Ok(Reply { value, confirmed: Ok(()) })
    }

    /// Whether scripts are sent without their flags.
    pub(super) fn refuses_flags(&self) -> bool {
        self.refuses_flags.load(Ordering::Relaxed)
    }

    pub(super) fn omit_flags(&self) {
        self.refuses_flags.store(true, Ordering::Relaxed);
    }

    pub(super) fn replicas_wanted(&self) -> u32 {
        self.replicas.as_ref().map_or(0, |replicas| replicas.wanted)
    }

    /// All commands of a key go by one connection: a late renewal must not overtake the release, since it would bring
    /// the claim back.
    fn connection(&self, key: &str) -> &Arc<SharedConnection> {
        &self.connections[self.connection_number(key)]
    }

    pub(super) fn connection_number(&self, key: &str) -> usize {
        (xxh3_64(key.as_bytes()) % self.connections.len() as u64) as usize
    }

    /// The key of an event's record.
    pub(super) fn key(&self, key: &EventKey) -> String {
        self.key_of(key.as_str())
    }

    pub(super) fn key_of(&self, key: &str) -> String {
        // On a Cluster, a name in braces decides which node has the key, and route templates have such names: all
        // events of an endpoint would be on one node. Empty braces in front disable them. An event's key begins with a
        // digit.
        let open = if key.contains('{') { "{}" } else { "" };
        [&*self.prefix, open, key].concat()
    }

    /// The key of an inbox's stream.
    pub(super) fn stream(&self) -> Result<String> {
        self.check_slot()?;
        Ok([&*self.prefix, EVENTS].concat())
    }

    /// The key of a stored request.
    pub(super) fn request_key(&self, name: &[u8]) -> Vec<u8> {
        [self.prefix.as_bytes(), REQUEST.as_bytes(), name].concat()
    }

    /// Fails on a Cluster where a prefix without a hash tag would have the keys of an inbox on several nodes.
    pub(super) fn check_slot(&self) -> Result<()> {
        match self.is_cluster && !has_tag(&self.prefix) {
            true => Err(CommandError::SeveralSlots),
            false => Ok(()),
        }
    }
}

/// Whether all keys that begin with this are in one slot: the first name in braces decides, unless it is empty.
fn has_tag(prefix: &str) -> bool {
    prefix.split_once('{').and_then(|(_, rest)| rest.split_once('}')).is_some_and(|(tag, _)| !tag.is_empty())
}

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
        let idle = (0..REPLICATED_WRITES).map(|_| SharedConnection::new(pool.clone(), time)).collect();
        Self { wanted, wait: command, time, permits: Semaphore::new(REPLICATED_WRITES), idle: Mutex::new(idle) }
    }

    /// Sends a write, and waits for the replicas.
    async fn ask(&self, command: &Cmd) -> Result<Reply> {
        let reserved = timeout(self.time, self.reserve()).await.ok().flatten();
        let mut reserved = reserved.ok_or(NoConnection::NotYet(self.time))?;
        let replies = reserved.connection.ask(command, Some(&self.wait), Sending::Repeatable).await;
        reserved.is_answered = !matches!(replies, Err(CommandError::TimedOut));
        let (value, acknowledged) = replies?;
        let acknowledged = acknowledged.and_then(|count| from_redis_value::<u32>(count).ok()).unwrap_or(0);
        let confirmed = match acknowledged >= self.wanted {
            true => Ok(()),
            false => Err(CommandError::NotReplicated { acknowledged, wanted: self.wanted }),
        };
        Ok(Reply { value, confirmed })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_name_in_braces_is_a_tag() {
        for (prefix, expected) in [
            ("{hooks}:", true),
            ("a:{b}c:", true),
            ("hooks:", false),
            ("{}:{a}", false),
            ("{hooks", false),
            ("}{", false),
        ] {
            assert_eq!(has_tag(prefix), expected, "{prefix}");
        }
    }
}
