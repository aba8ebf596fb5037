use std::sync::Arc;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::access::Access;
use super::lane::Lane;
use super::schema::Statements;
use crate::store::batcher::{Answers, BatchHandler, Batcher};

/// Tells workers, here and elsewhere, that an event may be due.
///
/// Elsewhere by NOTIFY: after what it tells of is committed, and in a statement of its own. Inside of the transaction it would
/// hold a lock of the whole database until the disk has it, and nobody else's could be committed meanwhile. One that is lost costs
/// its event the pause until a worker looks anyway.
#[derive(Clone)]
pub(super) struct Bell {
    here: Arc<Notify>,
    elsewhere: Batcher<Elsewhere>,
}

/// However often it is rung while one is on its way, another one will do.
struct Elsewhere {
    lane: Lane,
    sql: Arc<str>,
}

impl Bell {
    pub(super) fn new(access: &Access, deadline: Duration, statements: &Statements) -> Self {
        let lane = Lane::new("tower-webhook notifies", access, deadline, deadline).with("SET synchronous_commit = off");
        Self { here: Arc::default(), elsewhere: Batcher::new(Elsewhere { lane, sql: statements.notify.clone() }) }
    }

    pub(super) fn ring(&self) {
        self.here.notify_waiters();
        self.elsewhere.tell(());
    }

    /// Ready when it is rung here after this was called.
    pub(super) fn rung(&self) -> Notified<'_> {
        self.here.notified()
    }

    /// For what hears it from elsewhere.
    pub(super) fn here(&self) -> &Arc<Notify> {
        &self.here
    }
}

impl BatchHandler for Elsewhere {
    type Question = ();
    type Answer = ();

    async fn answer(&self, batch: &[()]) -> Answers<()> {
        // If it cannot be told, workers see for themselves.
        let _ = self.lane.run_until(self.lane.until(), || sqlx::query(AssertSqlSafe(self.sql.clone()))).await;
        batch.iter().map(|()| Ok(())).collect()
    }

    fn on_abandoned(&self, (): (), (): ()) {}
}
