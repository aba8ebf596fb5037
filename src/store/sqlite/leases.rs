use std::sync::Arc;
use std::time::Duration;

use super::fault::Fault;
use super::leasing::Wanted;
use super::question::Question;
use super::reader::Reader;
use super::store::unless_locked_for;
use super::writer::Writer;
use crate::store::group::{Answers, Engine, Group};
use crate::store::handed::{Handed, PutBack};
use crate::store::queue::Leased;

/// Leases in a task of its own: whoever asked may leave without tearing a statement.
pub(super) struct Leases {
    group: Group<Arc<Writer>>,
    reader: Arc<Reader>,
}

impl Leases {
    pub(super) fn new(group: &Group<Arc<Writer>>, reader: &Arc<Reader>) -> Self {
        Self { group: group.clone(), reader: reader.clone() }
    }

    /// Looks first, where it is in nobody's way: a worker with nothing to do must not take the write lock every time.
    async fn lease(&self, wanted: &Wanted) -> Result<Handed<Releases>, Fault> {
        let writer = self.group.engine();
        let is_due = self.reader.is_due(writer, wanted).await?;
        let events = if is_due { writer.lease(wanted).await? } else { Vec::new() };
        Ok(Handed::new(events, Releases { group: self.group.clone(), lease: wanted.lease }))
    }
}

impl Engine for Leases {
    type Question = Wanted;
    type Answer = Handed<Releases>;

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

/// Releases events whose worker has left. While another connection holds the write lock it asks again, for as long as they are leased:
/// otherwise they would be out of everybody's reach until then.
pub(super) struct Releases {
    group: Group<Arc<Writer>>,
    lease: Duration,
}

impl PutBack for Releases {
    fn put_back(&self, events: Vec<Leased>) {
        for event in events {
            let (group, lease) = (self.group.clone(), self.lease);
            tokio::spawn(async move {
                let release = Question::release(&event.key, event.token);
                // Whatever else fails is told to those who still ask something.
                let _ = unless_locked_for(lease, || group.ask(release.clone())).await;
            });
        }
    }
}
