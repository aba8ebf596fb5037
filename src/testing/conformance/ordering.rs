//! Events that run one at a time, in the order of their arrival.

use std::time::Duration;

use super::fixture::LONG;
use super::queue_fixture::{NewEvent, QueueFixture, ids};
use super::suite::{Case, Harness, cases};
use crate::store::Hold;
use crate::store::queue::{Filter, Order, Queue};

pub(super) fn cases<H: Harness<Store: Queue>>() -> Vec<Case<H>> {
    cases![
        events_of_one_resource_run_one_at_a_time_in_the_order_of_their_arrival,
        retried_event_delays_those_behind_it,
        released_event_stays_first,
        lapsed_event_stays_first,
        dead_letter_lets_the_next_event_run,
        discarded_event_lets_the_next_event_run,
        requeued_event_is_last_of_its_order,
        older_sequences_are_superseded,
        unfinished_events_supersede_nothing,
        discarded_event_supersedes_nothing,
        replayed_and_forgotten_events_stay_superseded,
    ]
}

fn of(resource: &str, id: &str) -> NewEvent {
    NewEvent::new(id).ordered(Order::of(resource))
}

fn nth(sequence: i64, id: &str) -> NewEvent {
    NewEvent::new(id).ordered(Order::of("r").sequence(sequence))
}

/// Events of one resource run one at a time, and those of others in parallel.
async fn events_of_one_resource_run_one_at_a_time_in_the_order_of_their_arrival(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    for draft in [of("a", "a1"), of("a", "a2"), of("b", "b1"), of("a", "a3"), NewEvent::new("free"), of("b", "b2")] {
        queue.adds(draft).await;
    }
    let first = queue.lease(10, LONG).await;
    queue.verify("lease", ids(&first), vec!["a1".to_owned(), "b1".to_owned(), "free".to_owned()]);
    queue.leases_nothing().await;
    queue.completes(&first[0], Hold::Held).await;
    let second = queue.lease(10, LONG).await;
    queue.verify("lease", ids(&second), vec!["a2".to_owned()]);
    queue.completes(&first[1], Hold::Held).await;
    queue.completes(&second[0], Hold::Held).await;
    let mut third = ids(&queue.lease(10, LONG).await);
    third.sort_unstable();
    queue.verify("lease", third, vec!["a3".to_owned(), "b2".to_owned()]);
}

/// Events behind a retried one wait, or the order would be lost.
async fn retried_event_delays_those_behind_it(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let first = queue.adds(of("a", "a1")).await;
    queue.adds(of("a", "a2")).await;
    queue.retries(&queue.leases(&first).await, harness.lease(), "flaky", Hold::Held).await;
    queue.leases_nothing().await;
    harness.pass(harness.lease() * 2).await;
    queue.leases(&first).await;
    queue.leases_nothing().await;
}

/// An event that is released stays the first: a worker that shuts down does not change the order.
async fn released_event_stays_first(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let first = queue.adds(of("a", "a1")).await;
    queue.adds(of("a", "a2")).await;
    queue.releases(&queue.leases(&first).await, Hold::Held).await;
    queue.verify("lease", ids(&queue.lease(10, LONG).await), vec!["a1".to_owned()]);
}

/// An event whose lease lapsed stays the first: a worker that dies does not change the order.
async fn lapsed_event_stays_first(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let first = queue.adds(of("a", "a1")).await;
    queue.adds(of("a", "a2")).await;
    queue.leases_for(harness.lease(), &first).await;
    harness.pass(harness.lease() * 2).await;
    queue.verify("lease", ids(&queue.lease(10, LONG).await), vec!["a1".to_owned()]);
}

/// A dead letter must not stop its resource for ever.
async fn dead_letter_lets_the_next_event_run(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let first = queue.adds(of("a", "a1")).await;
    let second = queue.adds(of("a", "a2")).await;
    queue.buries(&queue.leases(&first).await, "hopeless", Hold::Held).await;
    queue.leases(&second).await;
}

/// A discarded event does not stop its resource.
async fn discarded_event_lets_the_next_event_run(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let first = queue.adds(of("a", "a1")).await;
    let second = queue.adds(of("a", "a2")).await;
    queue.retries(&queue.leases(&first).await, LONG, "flaky", Hold::Held).await;
    queue.leases_nothing().await;
    let came = queue.answered("discard", queue.store.discard(&Filter::one(first.key), LONG).await);
    queue.verify("discarded", came, 1);
    queue.leases(&second).await;
}

/// A requeued event was overtaken already, so it is the last of its order.
async fn requeued_event_is_last_of_its_order(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let first = queue.adds(of("a", "a1")).await;
    let second = queue.adds(of("a", "a2")).await;
    queue.buries(&queue.leases(&first).await, "hopeless", Hold::Held).await;
    let leased = queue.leases(&second).await;
    queue.requeues(&Filter::one(first.key.clone()), false, 1).await;
    queue.leases_nothing().await;
    queue.completes(&leased, Hold::Held).await;
    queue.leases(&first).await;
}

/// An event whose sequence is not above the last completed one is superseded.
async fn older_sequences_are_superseded(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let other = NewEvent::new("other").ordered(Order::of("s").sequence(1));
    for (draft, superseded) in [
        (nth(5, "five"), false),
        (nth(4, "four"), true),
        (nth(5, "five again"), true),
        (nth(6, "six"), false),
        (of("r", "unnumbered"), false),
        (nth(-7, "long ago"), true),
        (other, false),
    ] {
        let event = queue.adds(draft).await;
        let leased = queue.leases(&event).await;
        queue.verify(event.key.id(), leased.superseded, superseded);
        queue.completes(&leased, Hold::Held).await;
    }
}

/// An event that failed was not applied, so it supersedes no other.
async fn unfinished_events_supersede_nothing(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let newer = queue.adds(nth(2, "newer")).await;
    queue.retries(&queue.leases(&newer).await, Duration::ZERO, "flaky", Hold::Held).await;
    queue.buries(&queue.leases(&newer).await, "hopeless", Hold::Held).await;
    let older = queue.adds(nth(1, "older")).await;
    queue.verify("superseded", queue.leases(&older).await.superseded, false);
}

/// An event that was never run was not applied, so it supersedes no other.
async fn discarded_event_supersedes_nothing(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let newer = queue.adds(nth(2, "newer")).await;
    let came = queue.answered("discard", queue.store.discard(&Filter::one(newer.key), LONG).await);
    queue.verify("discarded", came, 1);
    let older = queue.adds(nth(1, "older")).await;
    queue.verify("superseded", queue.leases(&older).await.superseded, false);
}

/// The last applied sequence is remembered for longer than its event, and a requeue of the event does not change it.
async fn replayed_and_forgotten_events_stay_superseded(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let applied = queue.adds(nth(5, "applied")).await;
    queue.completes(&queue.leases(&applied).await, Hold::Held).await;
    queue.requeues(&Filter::one(applied.key.clone()), true, 1).await;
    let replayed = queue.leases(&applied).await;
    queue.verify("superseded by itself", replayed.superseded, true);
    queue.completes(&replayed, Hold::Held).await;
    let came = queue.answered("forget", queue.store.forget(&Filter::one(applied.key)).await);
    queue.verify("forgotten", came, 1);
    let older = queue.adds(nth(4, "older")).await;
    queue.verify("superseded by what is forgotten", queue.leases(&older).await.superseded, true);
}
