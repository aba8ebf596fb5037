use std::collections::HashMap;
use std::sync::Arc;

use super::fault::Fault;
use super::question::{Answer, Question};
use super::record::{self, Record};
use super::time::Now;
use crate::store::StoreError;

/// What is stored under the keys of a batch; an error for a row that this store did not write.
pub(super) type Stored = HashMap<String, Result<Record, sqlx::Error>>;

/// How a batch is answered, and what has to be written before it is.
#[derive(Default)]
pub(super) struct Plan<'a> {
    answers: Vec<Planned>,
    changed: HashMap<&'a Arc<str>, Record>,
}

struct Planned {
    answer: Result<Answer, StoreError>,
    /// Whether it holds even if nothing is written.
    certain: bool,
}

impl<'a> Plan<'a> {
    /// Decides the questions in turn, each seeing what those before it changed: of two claims of one key, one wins.
    pub(super) fn new(batch: &'a [Question], stored: &Stored, now: &Now) -> Self {
        let mut plan = Self::default();
        for question in batch {
            let planned = plan.decide(question, stored, now);
            plan.answers.push(planned);
        }
        plan
    }

    /// Nothing could be read, so nothing is certain.
    pub(super) fn of_nothing() -> Self {
        Self::default()
    }

    pub(super) fn changes(&self) -> impl ExactSizeIterator<Item = (&'a Arc<str>, &Record)> {
        self.changed.iter().map(|(key, record)| (*key, record))
    }

    /// The answers to the batch, now that it is written; or those of them that hold without.
    pub(super) fn into_answers(self, batch: usize, written: Result<(), &Fault>) -> Vec<Result<Answer, StoreError>> {
        let Err(fault) = written else {
            return self.answers.into_iter().map(|planned| planned.answer).collect();
        };
        let mut answers = self.answers.into_iter();
        let next = || match answers.next() {
            Some(Planned { answer, certain: true }) => answer,
            _ => Err(fault.into()),
        };
        std::iter::repeat_with(next).take(batch).collect()
    }

    fn decide(&mut self, question: &'a Question, stored: &Stored, now: &Now) -> Planned {
        let key = &question.key;
        let (before, version) = match (self.changed.get(key), stored.get(&**key)) {
            (Some(changed), _) => (Some(changed), changed.version),
            (None, None) => (None, 1),
            (None, Some(Ok(stored))) => (Some(stored), stored.version + 1),
            (None, Some(Err(unreadable))) => {
                return Planned { answer: Err(StoreError::corrupt(unreadable.to_string())), certain: true };
            }
        };
        let (answer, after) = record::decide(before, question, now);
        if let Some(record) = after {
            self.changed.insert(key, Record { version, ..record });
        }
        Planned { answer: Ok(answer), certain: !self.changed.contains_key(key) }
    }
}
