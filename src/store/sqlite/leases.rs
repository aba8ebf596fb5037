use std::sync::Arc;

use tokio::runtime::Handle;

use super::leasing::Wanted;
use super::question::Question;
use super::writer::Writer;
use crate::inbox::Leased;
use crate::store::group::{Answers, Engine, Group};

/// Leases in a task of its own: whoever asked may leave without tearing a statement.
pub(super) struct Leases {
    group: Group<Arc<Writer>>,
}

/// Events on their way to a worker. Dropped before they have come, they are put back: nobody else knows their tokens.
pub(super) struct Handed {
    events: Vec<Leased>,
    group: Group<Arc<Writer>>,
}

impl Leases {
    pub(super) fn new(group: &Group<Arc<Writer>>) -> Self {
        Self { group: group.clone() }
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
            let leased = self.group.engine().lease(wanted).await;
            let handed = leased.map(|events| Handed { events, group: self.group.clone() });
            answers.push(handed.map_err(|fault| (&fault).into()));
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
