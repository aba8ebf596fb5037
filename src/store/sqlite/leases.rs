use std::sync::Arc;

use sqlx::Row as _;
use tokio::runtime::Handle;

use super::fault::Fault;
use super::leasing::Wanted;
use super::question::Question;
use super::reader::Reader;
use super::writer::Writer;
use crate::inbox::Leased;
use crate::store::group::{Answers, Engine, Group};

/// Leases in a task of its own: whoever asked may leave without tearing a statement.
pub(super) struct Leases {
    group: Group<Arc<Writer>>,
    reader: Arc<Reader>,
}

/// Events on their way to a worker. Dropped before they have come, they are put back: nobody else knows their tokens.
pub(super) struct Handed {
    events: Vec<Leased>,
    group: Group<Arc<Writer>>,
}

impl Leases {
    pub(super) fn new(group: &Group<Arc<Writer>>, reader: &Arc<Reader>) -> Self {
        Self { group: group.clone(), reader: reader.clone() }
    }

    /// Looks first, where it is in nobody's way: a worker with nothing to do must not take the write lock every time, and there
    /// may be many to be passed over that are of a kind it does not want.
    async fn lease(&self, wanted: &Wanted) -> Result<Handed, Fault> {
        let writer = self.group.engine();
        let is_due = writer.statements.leases.is_due(wanted, &writer.times.now());
        let is_due = self.reader.rows(writer, is_due).await?.first().map_or(Ok(false), |row| row.try_get(0))?;
        let events = if is_due { writer.lease(wanted).await? } else { Vec::new() };
        Ok(Handed { events, group: self.group.clone() })
    }
}

impl Handed {
    pub(super) fn take(mut self) -> Vec<Leased> {
        std::mem::take(&mut self.events)
    }
}

impl Engine for Leases {
    type Question = Wanted;
    type Answer = Handed;

    async fn answer(&self, batch: &[Wanted]) -> Answers<Handed> {
        let mut answers = Vec::with_capacity(batch.len());
        for wanted in batch {
            answers.push(self.lease(wanted).await.map_err(|fault| (&fault).into()));
        }
        answers
    }

    /// Dropping it is enough, as it is when the answer was sent and not looked at.
    fn unheard(&self, _: Wanted, _: Handed) {}
}

impl Drop for Handed {
    fn drop(&mut self) {
        // Without a runtime there is nobody to ask, and the leases end by themselves.
        if !self.events.is_empty() && Handle::try_current().is_ok() {
            for event in &self.events {
                self.group.tell(Question::release(&event.key, event.token));
            }
        }
    }
}
