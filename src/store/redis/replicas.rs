use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, Value, from_redis_value};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use super::RedisPool;
use super::fault::{Fault, NoConnection};
use super::lane::Lane;
use super::record::milliseconds;

/// How many writes wait for replicas at a time, each on a connection that is taken when it is first needed.
const LANES: usize = 16;

/// Writes that wait for replicas, on connections of their own: on a shared one `WAIT` would hold up everybody.
pub(super) struct Replicas {
    pool: RedisPool,
    wanted: u32,
    wait: Cmd,
    time: Duration,
    room: Semaphore,
    /// The one last used is on top, so that a quiet receiver keeps few connections.
    idle: Mutex<Vec<Arc<Lane>>>,
}

impl Replicas {
    /// Waits for `wanted` replicas for `wait`, and for the server itself for `timeout`.
    pub(super) fn new(pool: RedisPool, wanted: u32, wait: Duration, timeout: Duration) -> Self {
        let mut command = redis::cmd("WAIT");
        command.arg(wanted).arg(milliseconds(wait));
        let time = timeout.saturating_add(wait);
        Self { pool, wanted, wait: command, time, room: Semaphore::new(LANES), idle: Mutex::default() }
    }

    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// The reply to `command`, and whether enough replicas have what it wrote.
    pub(super) async fn ask(&self, command: &Cmd) -> Result<(Value, Result<(), Fault>), Fault> {
        let lent = timeout(self.time, self.lend()).await.map_err(|_| Fault::from(NoConnection::NotYet(self.time)))?;
        let (reply, acknowledged) = lent.lane.ask(command, Some(&self.wait)).await?;
        let acknowledged = acknowledged.and_then(|count| from_redis_value::<u32>(count).ok()).unwrap_or(0);
        let confirmed = match acknowledged >= self.wanted {
            true => Ok(()),
            false => Err(Fault::NotReplicated { acknowledged, wanted: self.wanted }),
        };
        Ok((reply, confirmed))
    }

    async fn lend(&self) -> Lent<'_> {
        let room = self.room.acquire().await.ok();
        let lane = self.idle().pop().unwrap_or_else(|| Lane::new(self.pool.clone(), self.time));
        Lent { replicas: self, lane, _room: room }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Lane>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane that nobody else uses until this is dropped.
struct Lent<'a> {
    replicas: &'a Replicas,
    lane: Arc<Lane>,
    _room: Option<SemaphorePermit<'a>>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // Before the permit, which is a field and goes after this.
        self.replicas.idle().push(self.lane.clone());
    }
}
