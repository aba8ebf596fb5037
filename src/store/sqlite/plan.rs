use std::collections::HashMap;
use std::sync::Arc;

use super::fault::Fault;
use super::question::{Answer, Question, Verb};
use super::queued::Arrival;
use super::record::{self, Record};
use super::time::Now;
use crate::random;
use crate::store::StoreError;
use crate::store::queue::StoredRequest;

/// What is stored under the keys of a batch; an error for a row that this store did not write.
pub(super) type Stored = HashMap<String, Result<Record, sqlx::Error>>;

/// How a batch is answered, and what has to be written before it is.
#[derive(Default)]
pub(super) struct Plan<'a> {
    answers: Vec<Planned>,
    changed: HashMap<&'a Arc<str>, Record>,
    /// How many events have arrived.
    arrived: i64,
    /// Whether it is about the inbox, too.
    queues: bool,
    stirs: bool,
}

struct Planned {
    answer: Result<Answer, StoreError>,
    /// Whether it holds even if nothing is written.
    certain: bool,
}

impl<'a> Plan<'a> {
    /// Decides the questions in turn, each seeing what those before it changed: of two claims of one key, one wins.
    pub(super) fn new(batch: &'a [Question], stored: &Stored, now: &Now) -> Self {
        let queues = stored.values().flatten().any(|record| record.queued.is_some());
        let mut plan = Self { queues, ..Self::default() };
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

    /// The parcels of those that have arrived, the first of them as this number.
    pub(super) fn parcels(&self, first: i64) -> Vec<(i64, Arc<StoredRequest>)> {
        let queued = self.changed.values().filter_map(|record| record.queued.as_ref());
        queued.filter_map(|queued| Some((queued.arrival.number(first), queued.parcel.clone()?))).collect()
    }

    /// How many events have arrived, for whom there are numbers to be found.
    pub(super) fn arrived(&self) -> i64 {
        self.arrived
    }

    /// Whether one of the rows is the inbox's, or was.
    pub(super) fn queues(&self) -> bool {
        self.queues
    }

    /// Whether an event of the inbox may be due once it is written.
    pub(super) fn stirs(&self) -> bool {
        self.stirs
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
            (None, None) => (None, first_version()),
            (None, Some(Ok(stored))) => (Some(stored), stored.version + 1),
            (None, Some(Err(unreadable))) => {
                return Planned { answer: Err(StoreError::corrupt(unreadable.to_string())), certain: true };
            }
        };
        let (answer, after) = record::decide(before, question, now);
        let is_queued = after.as_ref().or(before).is_some_and(|record| record.queued.is_some());
        self.queues |= is_queued;
        self.stirs |= is_queued && question.stirs() && answer.is_success();
        if let Some(mut record) = after {
            if let (Verb::Accept(..), Some(queued)) = (&question.verb, &mut record.queued) {
                queued.arrival = Arrival::After(self.arrived);
                self.arrived += 1;
            }
            self.changed.insert(key, Record { version, ..record });
        }
        Planned { answer: Ok(answer), certain: !self.changed.contains_key(key) }
    }
}

/// Unlike any other: a row that was purged and written anew must not be taken for the one that was read.
fn first_version() -> i64 {
    (random::bits() as u64 >> 2).cast_signed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::EventKey;
    use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, StoreErrorKind};

    const NOW: i64 = 1_000_000;

    fn now() -> Now {
        Now { wall: NOW, lease: NOW, boot: "boot".into() }
    }

    fn claim(key: &EventKey) -> ClaimRequest<'_> {
        ClaimRequest::new(key, ClaimToken::random(), Duration::from_secs(30))
    }

    /// A table in which this one event is completed.
    fn stored(key: &EventKey) -> Stored {
        let done = Question::complete(&claim(key), &Completion::succeeded("200 OK", Duration::from_secs(60)));
        let (_, record) = record::decide(None, &done, &now());
        HashMap::from([(key.as_str().to_owned(), Ok(record.expect("a record")))])
    }

    #[test]
    fn of_two_claims_in_one_batch_one_wins_and_one_row_is_written() {
        let key = EventKey::new("/hook", None, "evt_1");
        let batch = [Question::claim(&claim(&key)), Question::claim(&claim(&key))];
        let plan = Plan::new(&batch, &Stored::new(), &now());
        assert_eq!(plan.changes().len(), 1);
        let answers: Vec<_> =
            plan.into_answers(2, Ok(())).into_iter().map(|answer| answer.expect("an answer")).collect();
        let (fresh, in_flight) = (Claim::Fresh { attempt: Some(1) }, Claim::InFlight { same_body: true });
        assert_eq!(answers, [Answer::Claim(fresh), Answer::Claim(in_flight)]);
    }

    #[test]
    fn of_two_acceptances_in_one_batch_one_wins_and_the_numbers_are_in_the_order_of_the_questions() {
        let [first, second] = ["a", "b"].map(|id| EventKey::new("/hook", None, id));
        let parcel = StoredRequest::new("head", "body", std::time::UNIX_EPOCH);
        let batch = [&second, &second, &first].map(|key| Question::accept(&claim(key), &parcel));
        let plan = Plan::new(&batch, &Stored::new(), &now());
        assert!(plan.queues() && plan.stirs());
        let mut numbers: Vec<_> = plan
            .changes()
            .filter_map(|(key, record)| Some((record.queued.as_ref()?.arrival.number(7), EventKey::parse(key)?)))
            .collect();
        numbers.sort();
        assert_eq!(numbers, [(7, second), (8, first)]);
        let (fresh, accepted) = (Claim::Fresh { attempt: None }, Claim::Accepted { same_body: true });
        let answers: Vec<_> =
            plan.into_answers(3, Ok(())).into_iter().map(|answer| answer.expect("an answer")).collect();
        assert_eq!(answers, [fresh, accepted, fresh].map(Answer::Claim));
    }

    #[test]
    fn batch_without_the_inbox_is_written_as_ever() {
        let key = EventKey::new("/hook", None, "evt_1");
        let batch = [Question::claim(&claim(&key))];
        let plan = Plan::new(&batch, &stored(&EventKey::new("/hook", None, "old")), &now());
        assert!(!plan.queues() && !plan.stirs() && plan.arrived() == 0);
    }

    #[test]
    fn what_is_not_written_is_not_answered_and_nor_is_what_depends_on_it() {
        let (new, old) = (EventKey::new("/hook", None, "new"), EventKey::new("/hook", None, "old"));
        let batch = [&new, &old, &new].map(|key| Question::claim(&claim(key)));
        let plan = Plan::new(&batch, &stored(&old), &now());
        let answers = plan.into_answers(3, Err(&Fault::Locked));
        assert_eq!(answers[1].as_ref().ok(), Some(&Answer::Claim(Claim::Completed { same_body: true })));
        for unwritten in [&answers[0], &answers[2]] {
            assert_eq!(unwritten.as_ref().expect_err("locked").kind(), StoreErrorKind::Locked);
        }
    }

    #[test]
    fn every_question_is_refused_when_nothing_could_be_read() {
        let answers = Plan::of_nothing().into_answers(3, Err(&Fault::Locked));
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 3);
    }

    #[test]
    fn row_that_was_read_is_written_as_the_next_version_however_often_it_changes() {
        let key = EventKey::new("/hook", None, "evt_1");
        let mut table = stored(&key);
        table.values_mut().flatten().for_each(|record| (record.version, record.expires_at) = (7, NOW));
        let mine = claim(&key);
        let batch = [Question::claim(&mine), Question::release(&key, mine.token), Question::claim(&claim(&key))];
        let plan = Plan::new(&batch, &table, &now());
        assert_eq!(plan.changes().map(|(_, record)| record.version).collect::<Vec<_>>(), [8]);
    }
}
