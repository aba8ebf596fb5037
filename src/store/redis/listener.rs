//! Wakes idle workers when an event has arrived.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deadpool_redis::redis::{self, Cmd, Value};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use super::RedisPool;
use super::pool::Connection;
use crate::lock::lock;

/// How long the server waits for an event before it is asked again. A connection that leads nowhere is noticed after
/// this time.
const BLOCK: Duration = Duration::from_secs(5);

/// How much longer the reply may take.
const SLACK: Duration = Duration::from_secs(5);

/// Before another connection is taken.
const PAUSE: Duration = Duration::from_millis(500);

/// Waits for events that other processes enqueue, on a connection of its own: on a shared one, a command that blocks
/// would delay all others.
///
/// It listens only while a worker waits, and from the position up to which the workers have read: it does not miss what
/// arrives before it begins to listen, and a busy worker costs nothing.
pub(super) struct Listener {
    pool: RedisPool,
    stream: Box<str>,
    signals: Arc<Signals>,
    /// Aborted when the store is dropped.
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Default)]
struct Signals {
    arrived: Notify,
    wanted: Notify,
    /// The id of the last entry that a lease has seen, if there was a lease.
    position: Mutex<Option<String>>,
}

impl Listener {
    pub(super) fn new(pool: RedisPool, stream: String) -> Self {
        Self { pool, stream: stream.into(), signals: Arc::default(), task: Mutex::default() }
    }

    /// Ready when an event has arrived since this was called.
    pub(super) fn wake(&self) -> impl Future<Output = ()> + Send {
        let arrived = self.signals.arrived.notified();
        async move {
            self.listen();
            self.signals.wanted.notify_one();
            arrived.await;
        }
    }

    /// Wakes the workers of this process.
    pub(super) fn notify(&self) {
        self.signals.arrived.notify_waiters();
    }

    /// From now on, only entries behind this id are waited for.
    pub(super) fn set_position(&self, id: String) {
        *lock(&self.signals.position) = Some(id);
    }

    fn listen(&self) {
        let mut task = lock(&self.task);
        // The task has finished if the runtime in which it was started has ended.
        if task.as_ref().is_none_or(AbortHandle::is_finished) {
            let listening = listen(self.pool.clone(), self.stream.clone(), self.signals.clone());
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

async fn listen(pool: RedisPool, stream: Box<str>, signals: Arc<Signals>) {
    let mut connection: Option<Connection> = None;
    loop {
        signals.wanted.notified().await;
        loop {
            match ask(&pool, &mut connection, &signals.wait_command(&stream)).await {
                Some(Value::Nil) => {}
                Some(_) => break,
                None => {
                    // The idle connections of the pool may lead to the same dead end.
                    pool.drop_idle();
                    connection = None;
                    sleep(PAUSE).await;
                }
            }
        }
        signals.arrived.notify_waiters();
    }
}

/// Returns the reply, unless there is no connection, or none that works.
async fn ask(pool: &RedisPool, connection: &mut Option<Connection>, command: &Cmd) -> Option<Value> {
    if connection.is_none() {
        let mut taken = timeout(BLOCK, pool.take()).await.ok()?.ok()?;
        if let Connection::Node(node) = &mut taken {
            // The client waits for half a second by default.
            node.set_response_timeout(BLOCK + SLACK);
        }
        *connection = Some(taken);
    }
    timeout(BLOCK + SLACK, command.query_async(connection.as_mut()?)).await.ok()?.ok()
}

impl Signals {
    fn wait_command(&self, stream: &str) -> Cmd {
        let mut command = redis::cmd("XREAD");
        command.arg("COUNT").arg(1).arg("BLOCK").arg(BLOCK.as_millis() as u64).arg("STREAMS").arg(stream);
        // Before the first lease, only new entries count.
        command.arg(lock(&self.position).as_deref().unwrap_or("$"));
        command
    }
}
