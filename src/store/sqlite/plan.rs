//! The plan of a batch: its replies, and the rows to write before they are given.

use std::collections::HashMap;
use std::sync::Arc;

use super::fault::Fault;
use super::operation::{Operation, Reply};
use super::record::{self, Arrival, Record};
use super::time::Now;
use crate::random;
use crate::store::StoreError;
use crate::store::queue::StoredRequest;
use crate::store::record::Verb;

/// The rows under the keys of a batch; an error for a row that another program wrote.
pub(super) type Stored = HashMap<String, Result<Record, sqlx::Error>>;

/// The replies to a batch, and the rows that it changes.
#[derive(Default)]
pub(super) struct Plan<'a> {
    replies: Vec<Planned>,
    changed: HashMap<&'a Arc<str>, Record>,
    /// How many events arrive.
    arrived: i64,
    /// Whether one of the rows is, or was, a queued event.
    pub(super) has_queued: bool,
    /// Whether a queued event may be due once the batch is written.
    pub(super) wakes: bool,
}

struct Planned {
    reply: Result<Reply, StoreError>,
    /// Whether the reply holds even if nothing is written.
    is_certain: bool,
}

impl<'a> Plan<'a> {
    /// Decides the operations in turn, each seeing what those before it changed: of two claims of one key, one wins.
    pub(super) fn new(batch: &'a [Operation], stored: &Stored, now: &Now) -> Self {
        let has_queued = stored.values().flatten().any(|record| record.queued.is_some());
        let mut plan = Self { has_queued, ..Self::default() };
        for operation in batch {
            let planned = plan.decide(operation, stored, now);
            plan.replies.push(planned);
        }
        plan
    }

    pub(super) fn changes(&self) -> impl ExactSizeIterator<Item = (&'a Arc<str>, &Record)> {
        self.changed.iter().map(|(key, record)| (*key, record))
    }

    /// Whether events arrive, which have to be numbered.
    pub(super) fn has_arrivals(&self) -> bool {
        self.arrived > 0
    }

    /// The requests of the events that arrive, the first of them as this number.
    pub(super) fn requests(&self, first: i64) -> Vec<(i64, Arc<StoredRequest>)> {
        let queued = self.changed.values().filter_map(|record| record.queued.as_ref());
        queued.filter_map(|queued| Some((queued.arrival.number(first), queued.request.clone()?))).collect()
    }

    /// Returns the replies to the batch if it was written. If not, returns the replies that hold without a write, and
    /// errors for the others. An empty plan has no replies.
    pub(super) fn into_replies(self, batch: usize, written: Result<(), &Fault>) -> Vec<Result<Reply, StoreError>> {
        let Err(fault) = written else {
            return self.replies.into_iter().map(|planned| planned.reply).collect();
        };
        let mut replies = self.replies.into_iter();
        let next = || match replies.next() {
            Some(Planned { reply, is_certain: true }) => reply,
            _ => Err(fault.into()),
        };
        std::iter::repeat_with(next).take(batch).collect()
    }

    fn decide(&mut self, operation: &'a Operation, stored: &Stored, now: &Now) -> Planned {
        let key = &operation.key;
        let (before, version) = match (self.changed.get(key), stored.get(&**key)) {
            (Some(changed), _) => (Some(changed), changed.version),
            (None, None) => (None, first_version()),
            (None, Some(Ok(stored))) => (Some(stored), stored.version + 1),
            (None, Some(Err(unreadable))) => {
                return Planned { reply: Err(StoreError::corrupt(unreadable.to_string())), is_certain: true };
            }
        };
        let (reply, after) = record::decide(before, operation, now);
        let is_queued = after.as_ref().or(before).is_some_and(|record| record.queued.is_some());
        self.has_queued |= is_queued;
        self.wakes |= is_queued && operation.wakes() && reply.is_success();
        if let Some(mut record) = after {
            if let (Verb::Enqueue, Some(queued)) = (operation.verb, &mut record.queued) {
                queued.arrival = Arrival::After(self.arrived);
                self.arrived += 1;
            }
            self.changed.insert(key, Record { version, ..record });
        }
        Planned { reply: Ok(reply), is_certain: !self.changed.contains_key(key) }
    }
}

/// Draws a version unlike any other: a row that was purged and written anew must not be taken for the one that was
/// read.
fn first_version() -> i64 {
    (random::bits() as u64 >> 2).cast_signed()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::EventKey;
    use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Ending, StoreErrorKind};

    const NOW: i64 = 1_000_000;

    fn now() -> Now {
        Now { wall: NOW, since_boot: NOW, boot_id: "boot".into() }
    }

    fn claim(key: &EventKey) -> ClaimRequest<'_> {
        ClaimRequest::new(key, ClaimToken::random(), Duration::from_secs(30))
    }

    /// A table in which this one event is completed.
    fn stored(key: &EventKey) -> Stored {
        let completion = Completion::succeeded("200 OK", Duration::from_secs(60));
        let done = Operation::settle(&claim(key), &Ending::Complete(completion));
        let (_, record) = record::decide(None, &done, &now());
        HashMap::from([(key.as_str().to_owned(), Ok(record.expect("a record")))])
    }

    fn all(replies: Vec<Result<Reply, StoreError>>) -> Vec<Reply> {
        replies.into_iter().map(|reply| reply.expect("a reply")).collect()
    }

    #[test]
    fn of_two_claims_in_one_batch_one_wins_and_one_row_is_written() {
        let key = EventKey::new("/hook", None, "evt_1");
        let batch = [Operation::new(Verb::Claim, &claim(&key)), Operation::new(Verb::Claim, &claim(&key))];
        let plan = Plan::new(&batch, &Stored::new(), &now());
        assert_eq!(plan.changes().len(), 1);
        let replies = all(plan.into_replies(2, Ok(())));
        let (fresh, in_flight) = (Claim::Fresh { attempt: Some(1) }, Claim::InFlight { same_body: true });
        assert_eq!(replies, [Reply::Claim(fresh), Reply::Claim(in_flight)]);
    }

    #[test]
    fn of_two_enqueues_in_one_batch_one_wins_and_the_numbers_are_in_the_order_of_the_calls() {
        let [first, second] = ["a", "b"].map(|id| EventKey::new("/hook", None, id));
        let request = StoredRequest::new("head", "body", std::time::UNIX_EPOCH);
        let batch = [&second, &second, &first].map(|key| Operation::enqueue(&claim(key), &request));
        let plan = Plan::new(&batch, &Stored::new(), &now());
        assert!(plan.has_queued && plan.wakes);
        let mut numbers: Vec<_> = plan
            .changes()
            .filter_map(|(key, record)| Some((record.queued.as_ref()?.arrival.number(7), EventKey::parse(key)?)))
            .collect();
        numbers.sort();
        assert_eq!(numbers, [(7, second), (8, first)]);
        let (fresh, accepted) = (Claim::Fresh { attempt: None }, Claim::Accepted { same_body: true });
        let replies = all(plan.into_replies(3, Ok(())));
        assert_eq!(replies, [fresh, accepted, fresh].map(Reply::Claim));
    }

    #[test]
    fn batch_without_queued_events_is_written_as_ever() {
        let key = EventKey::new("/hook", None, "evt_1");
        let batch = [Operation::new(Verb::Claim, &claim(&key))];
        let plan = Plan::new(&batch, &stored(&EventKey::new("/hook", None, "old")), &now());
        assert!(!plan.has_queued && !plan.wakes && !plan.has_arrivals());
    }

    #[test]
    fn call_that_is_not_written_is_not_answered_nor_is_one_that_depends_on_it() {
        let (new, old) = (EventKey::new("/hook", None, "new"), EventKey::new("/hook", None, "old"));
        let batch = [&new, &old, &new].map(|key| Operation::new(Verb::Claim, &claim(key)));
        let plan = Plan::new(&batch, &stored(&old), &now());
        let replies = plan.into_replies(3, Err(&Fault::Locked));
        assert_eq!(replies[1].as_ref().ok(), Some(&Reply::Claim(Claim::Completed { same_body: true })));
        for unwritten in [&replies[0], &replies[2]] {
            assert_eq!(unwritten.as_ref().expect_err("locked").kind(), StoreErrorKind::Locked);
        }
    }

    #[test]
    fn every_call_is_refused_when_nothing_could_be_read() {
        let replies = Plan::default().into_replies(3, Err(&Fault::Locked));
        assert_eq!(replies.iter().filter(|reply| reply.is_err()).count(), 3);
    }

    #[test]
    fn row_that_was_read_is_written_as_the_next_version_however_often_it_changes() {
        let key = EventKey::new("/hook", None, "evt_1");
        let mut table = stored(&key);
        table.values_mut().flatten().for_each(|record| (record.version, record.expires_at) = (7, NOW));
        let mine = claim(&key);
        let batch = [
            Operation::new(Verb::Claim, &mine),
            Operation::settle(&mine, &Ending::Release),
            Operation::new(Verb::Claim, &claim(&key)),
        ];
        let plan = Plan::new(&batch, &table, &now());
        assert_eq!(plan.changes().map(|(_, record)| record.version).collect::<Vec<_>>(), [8]);
    }
}
