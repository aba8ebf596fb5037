//! What operators do.

use std::time::Duration;

use super::super::Harness;
use super::super::bench::{COMPLETED, FRESH, LONG};
use super::bench::{Desk, Draft};
use crate::EventKey;
use crate::store::Hold;
use crate::store::queue::{EventState, Filter, Page, Queue, QueueCounts};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    events_are_found_by_what_they_are(harness).await;
    pages_do_not_move(harness).await;
    unknown_events_are_nothing(harness).await;
    dead_letter_is_requeued_once(harness).await;
    completed_event_is_not_replayed_unless_forced(harness).await;
    waiting_and_running_events_are_not_requeued(harness).await;
    discarded_event_is_not_run(harness).await;
    forgotten_event_is_as_if_it_had_never_been(harness).await;
    counts_are_of_every_state(harness).await;
}

/// By state, type, endpoint and time.
pub async fn events_are_found_by_what_they_are(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("events_are_found_by_what_they_are", harness).await;
    let hour = Duration::from_secs(3600);
    let early = desk.received_at - hour;
    let dead = desk.keeps(Draft::new("dead").of_type("invoice.paid")).await;
    desk.buries(&desk.leases(&dead).await, "hopeless", Hold::Held).await;
    let done = desk.keeps(Draft::new("done").at("/other")).await;
    desk.completes(&desk.leases(&done).await, Hold::Held).await;
    let running = desk.keeps(Draft::new("running").received(early)).await;
    desk.leases(&running).await;
    desk.keeps(Draft::new("waiting").of_type("invoice.paid").at("/other")).await;

    let all = Filter::all;
    desk.lists(&all(), &["dead", "done", "running", "waiting"]).await;
    for (state, id) in [
        (EventState::Dead, "dead"),
        (EventState::Completed, "done"),
        (EventState::Running, "running"),
        (EventState::Waiting, "waiting"),
    ] {
        desk.lists(&all().state(state), &[id]).await;
    }
    desk.lists(&all().event_type("invoice.paid"), &["dead", "waiting"]).await;
    desk.lists(&all().endpoint("/other"), &["done", "waiting"]).await;
    desk.lists(&all().endpoint("/other").state(EventState::Dead), &[]).await;
    desk.lists(&all().since(desk.received_at), &["dead", "done", "waiting"]).await;
    desk.lists(&all().before(desk.received_at), &["running"]).await;
    desk.lists(&all().since(early).before(early + hour / 2), &["running"]).await;
    desk.lists(&Filter::one(done.key), &["done"]).await;
    let listed = desk.answered("list", desk.inbox.list(&all(), &Page::first(1)).await).remove(0);
    desk.verify("what is not listed", (listed.request, listed.failures), (None, Vec::new()));
    desk.verify("received", listed.received_at, desk.received_at);
}

/// Keyset, not offset.
pub async fn pages_do_not_move(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("pages_do_not_move", harness).await;
    for id in ["a", "b", "c", "d", "e"] {
        desk.keeps(Draft::new(id)).await;
    }
    let list = async |page: Page| desk.answered("list", desk.inbox.list(&Filter::all(), &page).await);
    let first = list(Page::first(2)).await;
    let names = |events: &[crate::store::queue::QueuedEvent]| -> Vec<String> {
        events.iter().map(|event| event.key.id().to_owned()).collect()
    };
    desk.verify("first page", names(&first), vec!["a".to_owned(), "b".to_owned()]);
    desk.keeps(Draft::new("f")).await;
    desk.completes(&desk.lease(1, LONG).await[0], Hold::Held).await;
    let second = list(Page::first(2).after(&first[1])).await;
    desk.verify("second page", names(&second), vec!["c".to_owned(), "d".to_owned()]);
    let third = list(Page::first(9).after(&second[1])).await;
    desk.verify("third page", names(&third), vec!["e".to_owned(), "f".to_owned()]);
    desk.verify("behind the last", list(Page::first(9).after(&third[1])).await.len(), 0);
}

/// Nor are inline ones events of the inbox.
pub async fn unknown_events_are_nothing(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("unknown_events_are_nothing", harness).await;
    let inline = Draft::new("inline");
    desk.claims(&inline, FRESH).await;
    for key in [inline.key, EventKey::new("/nowhere", None, "evt_1")] {
        desk.verify("get", desk.answered("get", desk.inbox.get(&key).await), None);
        desk.requeues(&Filter::one(key), true, 0).await;
    }
    desk.lists(&Filter::all(), &[]).await;
}

/// However often one clicks; and it has all its attempts again.
pub async fn dead_letter_is_requeued_once(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("dead_letter_is_requeued_once", harness).await;
    let dead = desk.keeps(Draft::new("dead")).await;
    desk.buries(&desk.leases(&dead).await, "hopeless", Hold::Held).await;
    let before = desk.keeps(Draft::new("before")).await;
    let filter = Filter::all().state(EventState::Dead);
    desk.requeues(&filter, false, 1).await;
    desk.requeues(&filter, false, 0).await;
    desk.requeues(&Filter::one(dead.key.clone()), false, 0).await;
    desk.is_in(&dead, EventState::Waiting).await;
    desk.leases(&before).await;
    let leased = desk.leases(&dead).await;
    desk.verify("attempt", leased.attempt, 1);
    desk.verify("request", &leased.request, &dead.request);
    desk.verify("failures", desk.kept(&dead).await.failures.len(), 1);
    desk.requeues(&filter, false, 0).await;
    desk.completes(&leased, Hold::Held).await;
    desk.leases_nothing().await;
}

/// It was done.
pub async fn completed_event_is_not_replayed_unless_forced(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("completed_event_is_not_replayed_unless_forced", harness).await;
    let done = desk.keeps(Draft::new("done")).await;
    desk.completes(&desk.leases(&done).await, Hold::Held).await;
    let filter = Filter::one(done.key.clone());
    desk.requeues(&filter, false, 0).await;
    desk.leases_nothing().await;
    desk.requeues(&filter, true, 1).await;
    desk.requeues(&filter, true, 0).await;
    desk.completes(&desk.leases(&done).await, Hold::Held).await;
    desk.claims(&done, COMPLETED).await;
}

/// They are going to be run anyway, and not twice.
pub async fn waiting_and_running_events_are_not_requeued(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("waiting_and_running_events_are_not_requeued", harness).await;
    let running = desk.keeps(Draft::new("running")).await;
    let leased = desk.leases(&running).await;
    desk.keeps(Draft::new("waiting")).await;
    desk.requeues(&Filter::all(), true, 0).await;
    desk.completes(&leased, Hold::Held).await;
}

/// Waiting or dead, it becomes done; running it is left alone.
pub async fn discarded_event_is_not_run(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("discarded_event_is_not_run", harness).await;
    let dead = desk.keeps(Draft::new("dead")).await;
    desk.buries(&desk.leases(&dead).await, "hopeless", Hold::Held).await;
    let running = desk.keeps(Draft::new("running")).await;
    let leased = desk.leases(&running).await;
    let waiting = desk.keeps(Draft::new("waiting")).await;
    let discard = async || desk.answered("discard", desk.inbox.discard(&Filter::all(), LONG).await);
    desk.verify("discarded", discard().await, 2);
    desk.verify("discarded again", discard().await, 0);
    desk.leases_nothing().await;
    for event in [&dead, &waiting] {
        desk.is_in(event, EventState::Completed).await;
        desk.claims(event, COMPLETED).await;
    }
    desk.completes(&leased, Hold::Held).await;
}

/// Completed or dead; what is still to be run is left alone.
pub async fn forgotten_event_is_as_if_it_had_never_been(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("forgotten_event_is_as_if_it_had_never_been", harness).await;
    let done = desk.keeps(Draft::new("done")).await;
    desk.completes(&desk.leases(&done).await, Hold::Held).await;
    let dead = desk.keeps(Draft::new("dead")).await;
    desk.buries(&desk.leases(&dead).await, "hopeless", Hold::Held).await;
    let running = desk.keeps(Draft::new("running")).await;
    desk.leases(&running).await;
    desk.keeps(Draft::new("waiting")).await;
    let forget = async |filter: Filter| desk.answered("forget", desk.inbox.forget(&filter).await);
    desk.verify("of another type", forget(Filter::all().event_type("nothing")).await, 0);
    desk.verify("dead ones", forget(Filter::all().state(EventState::Dead)).await, 1);
    desk.verify("the others", forget(Filter::all()).await, 1);
    desk.lists(&Filter::all(), &["running", "waiting"]).await;
    desk.accepts(&done, FRESH).await;
    desk.accepts(&dead, FRESH).await;
}

/// And tell for how long the oldest has waited.
pub async fn counts_are_of_every_state(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("counts_are_of_every_state", harness).await;
    let counts = async || desk.answered("counts", desk.inbox.counts().await);
    desk.verify("counts of nothing", counts().await, QueueCounts::default());
    for id in ["1", "2", "3", "4", "5", "6", "7"] {
        desk.keeps(Draft::new(id)).await;
    }
    let leased = desk.lease(4, LONG).await;
    desk.completes(&leased[0], Hold::Held).await;
    desk.buries(&leased[1], "hopeless", Hold::Held).await;
    desk.retries(&leased[2], LONG, "later", Hold::Held).await;
    let came = counts().await;
    desk.verify("counts", (came.waiting, came.running, came.completed, came.dead), (4, 1, 1, 1));
    desk.verify("whether the oldest is known", came.oldest_waiting.is_some(), true);
    desk.lease(10, LONG).await;
    desk.verify("the oldest that is due", counts().await.oldest_waiting, None);
}
