//! How events reach workers once they may be due: the next event of an order is promoted, and workers are notified.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::AssertSqlSafe;
use sqlx::Row as _;
use sqlx::postgres::{PgListener, PgPoolOptions, PgRow};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

use super::connection::DedicatedConnection;
use super::connector::Connector;
use super::scan_start::ScanStart;
use super::statements::{Statements, statement};
use crate::lock::lock;
use crate::store::batcher::{Answers, BatchHandler, Batcher};

/// The pause before the listener reconnects.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// After this time without a notification, the connection is tested: some connections are dropped silently.
const SILENCE: Duration = Duration::from_secs(60);

/// How long that test may take.
const TEST_DEADLINE: Duration = Duration::from_secs(5);

/// Makes the next event of an order leasable once its predecessor has finished.
///
/// The statement runs after an event was enqueued behind another one, and after an event has ended, each time once that
/// is committed: one of the two sees both. If neither does, because of a crash or because a transaction holds the row,
/// the order is found later among the [stalled](super::housekeeping::StalledOrders) ones.
#[derive(Clone)]
pub(super) struct Promoter {
    sql: Arc<str>,
    scan_start: Arc<ScanStart>,
}

impl Promoter {
    pub(super) fn new(statements: &Statements, scan_start: Arc<ScanStart>) -> Self {
        Self { sql: statements.text("promote_next"), scan_start }
    }

    pub(super) async fn promote_next(&self, connection: &DedicatedConnection, orders: &[&str], until: Instant) {
        if !orders.is_empty() {
            let rows = connection.fetch_all(until, || statement(&self.sql).bind(orders.to_vec())).await;
            self.include(&rows.unwrap_or_default());
        }
    }

    /// Promotes the next events on a connection of the pool.
    pub(super) async fn promote_next_over_pool(&self, connector: &Connector, orders: &[String]) {
        if !orders.is_empty() {
            let rows = connector.fetch_all(statement(&self.sql).bind(orders.to_vec())).await;
            self.include(&rows.unwrap_or_default());
        }
    }

    /// A promoted event has been due since it arrived, which may be before the start of the scan.
    fn include(&self, rows: &[PgRow]) {
        rows.iter().filter_map(|row| row.try_get(0).ok()).for_each(|due| self.scan_start.include(due));
    }
}

/// Wakes workers, here and in other processes, when an event may be due.
///
/// Other processes get a NOTIFY, which is sent after the commit and in a statement of its own. Sent in the transaction,
/// it would hold a lock of the whole database until the commit is on disk, and no other transaction could commit
/// meanwhile. If one is lost, its event waits until a worker polls.
#[derive(Clone)]
pub(super) struct Notifier {
    here: Arc<Notify>,
    remote: Batcher<RemoteNotifier>,
}

/// Sends a NOTIFY. Calls that come while one is on its way share the next one.
struct RemoteNotifier {
    connection: DedicatedConnection,
    sql: Arc<str>,
}

impl Notifier {
    pub(super) fn new(connector: &Connector, statements: &Statements) -> Self {
        let connection = DedicatedConnection::new("tower-webhook notifies", connector, connector.deadline)
            .with_settings("SET synchronous_commit = off");
        let remote = RemoteNotifier { connection, sql: statements.text("notify") };
        Self { here: Arc::default(), remote: Batcher::new(remote) }
    }

    pub(super) fn notify(&self) {
        self.here.notify_waiters();
        self.remote.tell(());
    }

    /// Ready when the workers of this process are notified after this call.
    pub(super) fn notified(&self) -> Notified<'_> {
        self.here.notified()
    }
}

impl BatchHandler for RemoteNotifier {
    type Question = ();
    type Answer = ();

    async fn answer(&self, batch: &[()]) -> Answers<()> {
        // If this fails, workers find the event when they poll.
        let _ = self.connection.fetch_all(self.connection.deadline(), || statement(&self.sql)).await;
        batch.iter().map(|()| Ok(())).collect()
    }

    fn on_abandoned(&self, (): (), (): ()) {}
}

/// Passes on the notifications of other processes, from a connection of its own. It listens from the first call of
/// [`listen`](Self::listen) until it is dropped.
pub(super) struct Listener {
    connector: Connector,
    channel_sql: Arc<str>,
    task: Mutex<Option<AbortHandle>>,
}

impl Listener {
    pub(super) fn new(connector: Connector, channel_sql: Arc<str>) -> Self {
        Self { connector, channel_sql, task: Mutex::new(None) }
    }

    /// Starts the task that listens. Idempotent: repeated calls start one task.
    pub(super) fn listen(&self, notifier: &Notifier) {
        // A pooler passes no notifications on: workers poll.
        if !self.connector.has_sessions() {
            return;
        }
        let mut task = lock(&self.task);
        // The task has finished if the runtime in which it was started has ended.
        if task.as_ref().is_some_and(|task| !task.is_finished()) {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let (connector, sql, here) = (self.connector.clone(), self.channel_sql.clone(), notifier.here.clone());
            *task = Some(runtime.spawn(keep_listening(connector, sql, here)).abort_handle());
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

async fn keep_listening(connector: Connector, sql: Arc<str>, here: Arc<Notify>) {
    loop {
        // The error is not reported: workers poll, and report it if they cannot.
        let _ = listen(&connector, &sql, &here).await;
        tokio::time::sleep(RECONNECT_PAUSE).await;
    }
}

/// Listens until the connection is lost.
async fn listen(connector: &Connector, sql: &Arc<str>, here: &Notify) -> Result<(), sqlx::Error> {
    let options = connector.session_options("tower-webhook listens");
    let own = PgPoolOptions::new().max_connections(1).max_lifetime(None).idle_timeout(None).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&own).await?;
    listener.eager_reconnect(false);
    let channel: String = sqlx::query_scalar(AssertSqlSafe(sql.clone())).fetch_one(&mut listener).await?;
    listener.listen(&channel).await?;
    // Notifications that were sent before the listener was ready are lost.
    here.notify_waiters();
    loop {
        match timeout(SILENCE, listener.try_recv()).await {
            Ok(Ok(Some(_))) => here.notify_waiters(),
            Ok(Ok(None)) => return Ok(()),
            Ok(Err(error)) => return Err(error),
            Err(_) => match timeout(TEST_DEADLINE, sqlx::query("SELECT 1").execute(&mut listener)).await {
                Ok(tested) => _ = tested?,
                Err(_) => return Ok(()),
            },
        }
    }
}
