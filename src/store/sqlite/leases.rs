use std::sync::Arc;

use sqlx::Row as _;

use super::fault::Fault;
use super::leasing::Wanted;
use super::question::Question;
use super::reader::Reader;
use super::writer::Writer;
use crate::inbox::Leased;
use crate::store::group::{Answers, Engine, Group};
use crate::store::handed::{Handed, PutBack};

/// Leases in a task of its own: whoever asked may leave without tearing a statement.
pub(super) struct Leases {
    group: Group<Arc<Writer>>,
    reader: Arc<Reader>,
}

impl Leases {
    pub(super) fn new(group: &Group<Arc<Writer>>, reader: &Arc<Reader>) -> Self {
        Self { group: group.clone(), reader: reader.clone() }
    }

    /// Looks first, where it is in nobody's way: a worker with nothing to do must not take the write lock every time, and there
    /// may be many to be passed over that are of a kind it does not want.
    async fn lease(&self, wanted: &Wanted) -> Result<Handed<Group<Arc<Writer>>>, Fault> {
        let writer = self.group.engine();
        let is_due = writer.statements.leases.is_due(wanted, &writer.times.now());
        let is_due = self.reader.rows(writer, is_due).await?.first().map_or(Ok(false), |row| row.try_get(0))?;
        let events = if is_due { writer.lease(wanted).await? } else { Vec::new() };
        Ok(Handed::new(events, self.group.clone()))
    }
}

impl Engine for Leases {
    type Question = Wanted;
    type Answer = Handed<Group<Arc<Writer>>>;

    async fn answer(&self, batch: &[Wanted]) -> Answers<Self::Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for wanted in batch {
            answers.push(self.lease(wanted).await.map_err(|fault| (&fault).into()));
        }
        answers
    }

    /// Dropping it is enough, as it is when the answer was sent and not looked at.
    fn unheard(&self, _: Wanted, _: Self::Answer) {}
}

impl PutBack for Group<Arc<Writer>> {
    fn put_back(&self, events: Vec<Leased>) {
        for event in events {
            self.tell(Question::release(&event.key, event.token));
        }
    }
}
