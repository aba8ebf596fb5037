use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::access::Access;

/// Before it is listened again, on another connection.
const PAUSE: Duration = Duration::from_secs(1);

/// After so long a silence it is asked whether the connection is still there: some are dropped without a word.
const SILENCE: Duration = Duration::from_secs(60);

/// For the answer to that.
const DEADLINE: Duration = Duration::from_secs(5);

/// Listens for what is rung elsewhere, on a connection of its own: from when it is first asked to, until it is dropped.
pub(super) struct Ear {
    access: Access,
    channel_sql: Arc<str>,
    task: Mutex<Option<AbortHandle>>,
}

impl Ear {
    pub(super) fn new(access: Access, channel_sql: Arc<str>) -> Self {
        Self { access, channel_sql, task: Mutex::new(None) }
    }

    /// Has `heard` told of everything from now on. Asked again and again, it listens once.
    pub(super) fn listen(&self, heard: &Arc<Notify>) {
        // Behind a pooler nothing would be heard: workers see for themselves, every now and then.
        if !self.access.has_sessions() {
            return;
        }
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // Its runtime may have ended, and this be another one.
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (access, sql, heard) = (self.access.clone(), self.channel_sql.clone(), heard.clone());
            *task = Some(runtime.spawn(keep_listening(access, sql, heard)).abort_handle());
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

async fn keep_listening(access: Access, sql: Arc<str>, heard: Arc<Notify>) {
    loop {
        // Whatever ended it: workers look every now and then, and say so if they cannot.
        let _ = listen(&access, &sql, &heard).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// Listens until the connection is lost.
async fn listen(access: &Access, sql: &Arc<str>, heard: &Notify) -> Result<(), sqlx::Error> {
    let options = access.session_options("tower-webhook listens");
    let own = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&own).await?;
    listener.eager_reconnect(false);
    let channel: String = sqlx::query_scalar(AssertSqlSafe(sql.clone())).fetch_one(&mut listener).await?;
    listener.listen(&channel).await?;
    // What was rung before.
    heard.notify_waiters();
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(_))) => heard.notify_waiters(),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => match timeout(DEADLINE, sqlx::query("SELECT 1").execute(&mut listener)).await {
                Ok(answered) => _ = answered?,
                Err(_) => return Ok(()),
            },
        }
    }
}
