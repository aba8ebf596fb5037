//! Telling idle workers that an event has arrived.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::super::RedisPool;
use super::super::line::Line;
use super::EVENTS;

/// How long the server is asked to wait for an event, before it is asked again: so long it may take until a connection that leads
/// nowhere is noticed.
const BLOCK: Duration = Duration::from_secs(5);

/// How much longer its answer may take.
const SLACK: Duration = Duration::from_secs(5);

/// Before another connection is taken.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits for events that other processes accept, on a connection of its own: on a shared one, a command that blocks would hold up
/// everybody.
///
/// It listens only while somebody wants to know, and from where the workers have read up to. What arrives before it begins to
/// listen is therefore not missed, and a worker that is busy costs nothing.
pub(in super::super) struct Listener {
    pool: RedisPool,
    events: Box<str>,
    ear: Arc<Ear>,
    /// Ends when the store does.
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct Ear {
    arrived: Notify,
    wanted: Notify,
    /// The id that everything up to was read, when that was last asked.
    read: Mutex<Option<String>>,
}

impl Listener {
    pub(in super::super) fn new(pool: RedisPool, prefix: &str) -> Self {
        Self { pool, events: [prefix, EVENTS].concat().into(), ear: Arc::default(), task: Mutex::default() }
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.pool.is_cluster()
    }

    /// Ready when something has arrived since this was called.
    pub(super) fn wake(&self) -> impl Future<Output = ()> + Send {
        let arrived = self.ear.arrived.notified();
        async move {
            self.listen();
            self.ear.wanted.notify_one();
            arrived.await;
        }
    }

    /// Something has arrived, by this store itself.
    pub(super) fn tell(&self) {
        self.ear.arrived.notify_waiters();
    }

    /// Nothing is left to be read but what comes after this.
    pub(super) fn read_up_to(&self, id: String) {
        *lock(&self.ear.read) = Some(id);
    }

    fn listen(&self) {
        let mut task = lock(&self.task);
        // Finished, if the runtime that it was started in has ended.
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let listening = listen(self.pool.clone(), self.events.clone(), self.ear.clone());
            *task = Some(tokio::spawn(listening).abort_handle());
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(task) = &*lock(&self.task) {
            task.abort();
        }
    }
}

async fn listen(pool: RedisPool, events: Box<str>, ear: Arc<Ear>) {
    let mut line: Option<Line> = None;
    loop {
        ear.wanted.notified().await;
        loop {
            match ask(&pool, &mut line, &ear.await_arrival(&events)).await {
                Some(Value::Nil) => {}
                Some(_) => break,
                None => {
                    // Those that lie idle in the pool may lead to the same dead end.
                    pool.drop_idle();
                    line = None;
                    sleep(PAUSE).await;
                }
            }
        }
        ear.arrived.notify_waiters();
    }
}

/// The answer, unless there is no connection, or none that works.
async fn ask(pool: &RedisPool, line: &mut Option<Line>, question: &Cmd) -> Option<Value> {
    if line.is_none() {
        let mut taken = timeout(BLOCK, pool.take()).await.ok()?.ok()?;
        if let Line::Node(node) = &mut taken {
            // Half a second is what the client waits for a reply unless told otherwise.
            node.set_response_timeout(BLOCK + SLACK);
        }
        *line = Some(taken);
    }
    timeout(BLOCK + SLACK, question.query_async(line.as_mut()?)).await.ok()?.ok()
}

impl Ear {
    fn await_arrival(&self, events: &str) -> Cmd {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(1).arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS").arg(events);
        // Before anything was leased there is nothing to compare with.
        command.arg(lock(&self.read).as_deref().unwrap_or("$"));
        command
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
