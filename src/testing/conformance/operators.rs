//! The queries and changes of operators.

use std::time::Duration;

use super::fixture::{COMPLETED, FRESH, LONG};
use super::queue_fixture::{NewEvent, QueueFixture};
use super::suite::{Case, Harness, cases};
use crate::EventKey;
use crate::store::Hold;
use crate::store::queue::{EventState, Filter, Page, Queue, QueueCounts};

pub(super) fn cases<H: Harness<Store: Queue>>() -> Vec<Case<H>> {
    cases![
        events_are_found_by_their_properties,
        pages_do_not_move,
        unknown_events_are_not_found,
        dead_letter_is_requeued_once,
        completed_event_is_not_replayed_unless_forced,
        waiting_and_running_events_are_not_requeued,
        discarded_event_is_not_run,
        forgotten_event_can_be_enqueued_again,
        counts_are_of_every_state,
    ]
}

/// A filter finds events by state, type, endpoint and time.
async fn events_are_found_by_their_properties(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let hour = Duration::from_secs(3600);
    let early = queue.received_at - hour;
    let dead = queue.adds(NewEvent::new("dead").of_type("invoice.paid")).await;
    queue.buries(&queue.leases(&dead).await, "hopeless", Hold::Held).await;
    let done = queue.adds(NewEvent::new("done").at("/other")).await;
    queue.completes(&queue.leases(&done).await, Hold::Held).await;
    let running = queue.adds(NewEvent::new("running").received(early)).await;
    queue.leases(&running).await;
    queue.adds(NewEvent::new("waiting").of_type("invoice.paid").at("/other")).await;

    let all = Filter::all;
    queue.lists(&all(), &["dead", "done", "running", "waiting"]).await;
    for (state, id) in [
        (EventState::Dead, "dead"),
        (EventState::Completed, "done"),
        (EventState::Running, "running"),
        (EventState::Waiting, "waiting"),
    ] {
        queue.lists(&all().state(state), &[id]).await;
    }
    queue.lists(&all().event_type("invoice.paid"), &["dead", "waiting"]).await;
    queue.lists(&all().endpoint("/other"), &["done", "waiting"]).await;
    queue.lists(&all().endpoint("/other").state(EventState::Dead), &[]).await;
    queue.lists(&all().since(queue.received_at), &["dead", "done", "waiting"]).await;
    queue.lists(&all().before(queue.received_at), &["running"]).await;
    queue.lists(&all().since(early).before(early + hour / 2), &["running"]).await;
    queue.lists(&Filter::one(done.key), &["done"]).await;
    let listed = queue.answered("list", queue.store.list(&all(), &Page::first(1)).await).remove(0);
    queue.verify("what is not listed", (listed.request, listed.failures), (None, Vec::new()));
    queue.verify("received", listed.received_at, queue.received_at);
}

/// A page begins after an event and not at an offset: arrivals and completions move no page.
async fn pages_do_not_move(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    for id in ["a", "b", "c", "d", "e"] {
        queue.adds(NewEvent::new(id)).await;
    }
    let list = async |page: Page| queue.answered("list", queue.store.list(&Filter::all(), &page).await);
    let first = list(Page::first(2)).await;
    let names = |events: &[crate::store::queue::QueuedEvent]| -> Vec<String> {
        events.iter().map(|event| event.key.id().to_owned()).collect()
    };
    queue.verify("first page", names(&first), vec!["a".to_owned(), "b".to_owned()]);
    queue.adds(NewEvent::new("f")).await;
    queue.completes(&queue.lease(1, LONG).await[0], Hold::Held).await;
    let second = list(Page::first(2).after(&first[1])).await;
    queue.verify("second page", names(&second), vec!["c".to_owned(), "d".to_owned()]);
    let third = list(Page::first(9).after(&second[1])).await;
    queue.verify("third page", names(&third), vec!["e".to_owned(), "f".to_owned()]);
    queue.verify("behind the last", list(Page::first(9).after(&third[1])).await.len(), 0);
}

/// Neither an unknown event nor one that is run inline is in the queue.
async fn unknown_events_are_not_found(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let inline = NewEvent::new("inline");
    queue.claims(&inline, FRESH).await;
    for key in [inline.key, EventKey::new("/nowhere", None, "evt_1")] {
        queue.verify("get", queue.answered("get", queue.store.get(&key).await), None);
        queue.requeues(&Filter::one(key), true, 0).await;
    }
    queue.lists(&Filter::all(), &[]).await;
}

/// A dead letter is requeued once, however often the operator asks, and has all its attempts again.
async fn dead_letter_is_requeued_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let dead = queue.adds(NewEvent::new("dead")).await;
    queue.buries(&queue.leases(&dead).await, "hopeless", Hold::Held).await;
    let before = queue.adds(NewEvent::new("before")).await;
    let filter = Filter::all().state(EventState::Dead);
    queue.requeues(&filter, false, 1).await;
    queue.requeues(&filter, false, 0).await;
    queue.requeues(&Filter::one(dead.key.clone()), false, 0).await;
    queue.is_in(&dead, EventState::Waiting).await;
    queue.leases(&before).await;
    let leased = queue.leases(&dead).await;
    queue.verify("attempt", leased.attempt, 1);
    queue.verify("request", &leased.request, &dead.request);
    queue.verify("failures", queue.gets(&dead).await.failures.len(), 1);
    queue.requeues(&filter, false, 0).await;
    queue.completes(&leased, Hold::Held).await;
    queue.leases_nothing().await;
}

/// A completed event is requeued only if the operator asks for completed events, too.
async fn completed_event_is_not_replayed_unless_forced(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let done = queue.adds(NewEvent::new("done")).await;
    queue.completes(&queue.leases(&done).await, Hold::Held).await;
    let filter = Filter::one(done.key.clone());
    queue.requeues(&filter, false, 0).await;
    queue.leases_nothing().await;
    queue.requeues(&filter, true, 1).await;
    queue.requeues(&filter, true, 0).await;
    queue.completes(&queue.leases(&done).await, Hold::Held).await;
    queue.claims(&done, COMPLETED).await;
}

/// Waiting and running events are going to be run anyway, and must not run twice.
async fn waiting_and_running_events_are_not_requeued(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let running = queue.adds(NewEvent::new("running")).await;
    let leased = queue.leases(&running).await;
    queue.adds(NewEvent::new("waiting")).await;
    queue.requeues(&Filter::all(), true, 0).await;
    queue.completes(&leased, Hold::Held).await;
}

/// A discarded event, waiting or dead, is completed. A running one is left alone.
async fn discarded_event_is_not_run(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let dead = queue.adds(NewEvent::new("dead")).await;
    queue.buries(&queue.leases(&dead).await, "hopeless", Hold::Held).await;
    let running = queue.adds(NewEvent::new("running")).await;
    let leased = queue.leases(&running).await;
    let waiting = queue.adds(NewEvent::new("waiting")).await;
    let discard = async || queue.answered("discard", queue.store.discard(&Filter::all(), LONG).await);
    queue.verify("discarded", discard().await, 2);
    queue.verify("discarded again", discard().await, 0);
    queue.leases_nothing().await;
    for event in [&dead, &waiting] {
        queue.is_in(event, EventState::Completed).await;
        queue.claims(event, COMPLETED).await;
    }
    queue.completes(&leased, Hold::Held).await;
}

/// A forgotten event, completed or dead, is unknown to the queue. Waiting and running events are left alone.
async fn forgotten_event_can_be_enqueued_again(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let done = queue.adds(NewEvent::new("done")).await;
    queue.completes(&queue.leases(&done).await, Hold::Held).await;
    let dead = queue.adds(NewEvent::new("dead")).await;
    queue.buries(&queue.leases(&dead).await, "hopeless", Hold::Held).await;
    let running = queue.adds(NewEvent::new("running")).await;
    queue.leases(&running).await;
    queue.adds(NewEvent::new("waiting")).await;
    let forget = async |filter: Filter| queue.answered("forget", queue.store.forget(&filter).await);
    queue.verify("of another type", forget(Filter::all().event_type("nothing")).await, 0);
    queue.verify("dead ones", forget(Filter::all().state(EventState::Dead)).await, 1);
    queue.verify("the others", forget(Filter::all()).await, 1);
    queue.lists(&Filter::all(), &["running", "waiting"]).await;
    queue.enqueues(&done, FRESH).await;
    queue.enqueues(&dead, FRESH).await;
}

/// The counts cover every state, and say for how long the oldest due event has waited.
async fn counts_are_of_every_state(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let counts = async || queue.answered("counts", queue.store.counts().await);
    queue.verify("counts of nothing", counts().await, QueueCounts::default());
    for id in ["1", "2", "3", "4", "5", "6", "7"] {
        queue.adds(NewEvent::new(id)).await;
    }
    let leased = queue.lease(4, LONG).await;
    queue.completes(&leased[0], Hold::Held).await;
    queue.buries(&leased[1], "hopeless", Hold::Held).await;
    queue.retries(&leased[2], LONG, "later", Hold::Held).await;
    let came = counts().await;
    queue.verify("counts", (came.waiting, came.running, came.completed, came.dead), (4, 1, 1, 1));
    queue.verify("whether the oldest is known", came.oldest_waiting.is_some(), true);
    queue.lease(10, LONG).await;
    queue.verify("the oldest that is due", counts().await.oldest_waiting, None);
}
