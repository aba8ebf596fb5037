use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, Value, from_redis_value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::RedisPool;
use super::fault::{Fault, NoConnection};
use super::lane::{Lane, OnBreak};
use super::record::milliseconds;

/// How many writes wait for replicas at a time, each on a connection that is taken when it is first needed.
const LANES: usize = 16;

/// Writes that wait for replicas, on connections of their own: on a shared one `WAIT` would hold up everybody.
pub(super) struct Replicas {
    wanted: u32,
    wait: Cmd,
    time: Duration,
    room: Semaphore,
    /// The one last used is the next, so that a quiet receiver keeps few connections; the last are those where the server may
    /// still be waiting for replicas, which would hold up the next command.
    idle: Mutex<VecDeque<Arc<Lane>>>,
}

impl Replicas {
    /// Waits for `wanted` replicas for `wait`, and for the server itself for `timeout`.
    pub(super) fn new(pool: &RedisPool, wanted: u32, wait: Duration, timeout: Duration) -> Self {
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(milliseconds(wait));
        let time = timeout.saturating_add(wait);
        let idle = (0..LANES).map(|_| Lane::new(pool.clone(), time)).collect();
        Self { wanted, wait: command, time, room: Semaphore::new(LANES), idle: Mutex::new(idle) }
    }

    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// The reply to `command`, and whether enough replicas have what it wrote.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<(Value, Result<(), Fault>), Fault> {
        let lent = timeout(self.time, self.lend()).await.ok().flatten();
        let mut lent = lent.ok_or(NoConnection::NotYet(self.time))?;
        let replies = lent.lane.ask(command, Some(&self.wait), OnBreak::Repeat).await;
        lent.is_answered = !matches!(replies, Err(Fault::TimedOut));
        let (reply, acknowledged) = replies?;
        let acknowledged = acknowledged.and_then(|count| from_redis_value::<u32>(count).ok()).unwrap_or(0);
        let confirmed = match acknowledged >= self.wanted {
            true => Ok(()),
            false => Err(Fault::NotReplicated { acknowledged, wanted: self.wanted }),
        };
        Ok((reply, confirmed))
    }

    /// There are as many lanes as permits.
    async fn lend(&self) -> Option<Lent<'_>> {
        let room = self.room.acquire().await.ok()?;
        let lane = self.idle().pop_front()?;
        Some(Lent { replicas: self, lane, is_answered: false, _room: room })
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Arc<Lane>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane that nobody else uses until this is dropped.
struct Lent<'a> {
    replicas: &'a Replicas,
    lane: Arc<Lane>,
    /// Not if whoever asked has left meanwhile.
    is_answered: bool,
    _room: SemaphorePermit<'a>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // Before the permit, which is a field and goes after this.
        let (mut idle, lane) = (self.replicas.idle(), self.lane.clone());
        if self.is_answered { idle.push_front(lane) } else { idle.push_back(lane) }
    }
}
