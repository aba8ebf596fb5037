//! Events that wait for each other.

use std::time::Duration;

use super::super::Harness;
use super::super::bench::LONG;
use super::bench::{Desk, Draft, ids};
use crate::store::Hold;
use crate::store::queue::{Filter, Order, Queue};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    events_of_one_resource_run_one_at_a_time_in_the_order_of_their_arrival(harness).await;
    retried_event_holds_up_those_behind_it(harness).await;
    released_event_stays_first(harness).await;
    lapsed_event_stays_first(harness).await;
    dead_letter_lets_the_next_one_go_on(harness).await;
    discarded_event_lets_the_next_one_go_on(harness).await;
    requeued_event_is_last_in_its_line(harness).await;
    old_news_are_superseded(harness).await;
    unfinished_events_supersede_nothing(harness).await;
    discarded_event_supersedes_nothing(harness).await;
    replayed_and_forgotten_events_stay_old_news(harness).await;
}

fn of(resource: &str, id: &str) -> Draft {
    Draft::new(id).ordered(Order::of(resource))
}

fn nth(sequence: i64, id: &str) -> Draft {
    Draft::new(id).ordered(Order::of("r").sequence(sequence))
}

/// And others in parallel.
pub async fn events_of_one_resource_run_one_at_a_time_in_the_order_of_their_arrival(
    harness: &impl Harness<Store: Queue>,
) {
    let desk = Desk::new("events_of_one_resource_run_one_at_a_time_in_the_order_of_their_arrival", harness).await;
    for draft in [of("a", "a1"), of("a", "a2"), of("b", "b1"), of("a", "a3"), Draft::new("free"), of("b", "b2")] {
        desk.keeps(draft).await;
    }
    let first = desk.lease(10, LONG).await;
    desk.verify("lease", ids(&first), vec!["a1".to_owned(), "b1".to_owned(), "free".to_owned()]);
    desk.leases_nothing().await;
    desk.completes(&first[0], Hold::Held).await;
    let second = desk.lease(10, LONG).await;
    desk.verify("lease", ids(&second), vec!["a2".to_owned()]);
    desk.completes(&first[1], Hold::Held).await;
    desk.completes(&second[0], Hold::Held).await;
    let mut third = ids(&desk.lease(10, LONG).await);
    third.sort_unstable();
    desk.verify("lease", third, vec!["a3".to_owned(), "b2".to_owned()]);
}

/// Otherwise the order would be lost.
pub async fn retried_event_holds_up_those_behind_it(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("retried_event_holds_up_those_behind_it", harness).await;
    let first = desk.keeps(of("a", "a1")).await;
    desk.keeps(of("a", "a2")).await;
    desk.retries(&desk.leases(&first).await, harness.lease(), "flaky", Hold::Held).await;
    desk.leases_nothing().await;
    harness.pass(harness.lease() * 2).await;
    desk.leases(&first).await;
    desk.leases_nothing().await;
}

/// A worker that shuts down does not change the order.
pub async fn released_event_stays_first(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("released_event_stays_first", harness).await;
    let first = desk.keeps(of("a", "a1")).await;
    desk.keeps(of("a", "a2")).await;
    desk.releases(&desk.leases(&first).await, Hold::Held).await;
    desk.verify("lease", ids(&desk.lease(10, LONG).await), vec!["a1".to_owned()]);
}

/// Nor does one that dies.
pub async fn lapsed_event_stays_first(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("lapsed_event_stays_first", harness).await;
    let first = desk.keeps(of("a", "a1")).await;
    desk.keeps(of("a", "a2")).await;
    desk.leases_for(harness.lease(), &first).await;
    harness.pass(harness.lease() * 2).await;
    desk.verify("lease", ids(&desk.lease(10, LONG).await), vec!["a1".to_owned()]);
}

/// One event that cannot be run must not stop its resource for ever.
pub async fn dead_letter_lets_the_next_one_go_on(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("dead_letter_lets_the_next_one_go_on", harness).await;
    let first = desk.keeps(of("a", "a1")).await;
    let second = desk.keeps(of("a", "a2")).await;
    desk.buries(&desk.leases(&first).await, "hopeless", Hold::Held).await;
    desk.leases(&second).await;
}

/// Nor one that an operator takes out.
pub async fn discarded_event_lets_the_next_one_go_on(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("discarded_event_lets_the_next_one_go_on", harness).await;
    let first = desk.keeps(of("a", "a1")).await;
    let second = desk.keeps(of("a", "a2")).await;
    desk.retries(&desk.leases(&first).await, LONG, "flaky", Hold::Held).await;
    desk.leases_nothing().await;
    let came = desk.answered("discard", desk.inbox.discard(&Filter::one(first.key), LONG).await);
    desk.verify("discarded", came, 1);
    desk.leases(&second).await;
}

/// It was overtaken already.
pub async fn requeued_event_is_last_in_its_line(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("requeued_event_is_last_in_its_line", harness).await;
    let first = desk.keeps(of("a", "a1")).await;
    let second = desk.keeps(of("a", "a2")).await;
    desk.buries(&desk.leases(&first).await, "hopeless", Hold::Held).await;
    let leased = desk.leases(&second).await;
    desk.requeues(&Filter::one(first.key.clone()), false, 1).await;
    desk.leases_nothing().await;
    desk.completes(&leased, Hold::Held).await;
    desk.leases(&first).await;
}

/// An event whose sequence is not above the last one that was completed.
pub async fn old_news_are_superseded(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("old_news_are_superseded", harness).await;
    let other = Draft::new("other").ordered(Order::of("s").sequence(1));
    for (draft, superseded) in [
        (nth(5, "five"), false),
        (nth(4, "four"), true),
        (nth(5, "five again"), true),
        (nth(6, "six"), false),
        (of("r", "unnumbered"), false),
        (nth(-7, "long ago"), true),
        (other, false),
    ] {
        let event = desk.keeps(draft).await;
        let leased = desk.leases(&event).await;
        desk.verify(event.key.id(), leased.superseded, superseded);
        desk.completes(&leased, Hold::Held).await;
    }
}

/// What failed was not applied.
pub async fn unfinished_events_supersede_nothing(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("unfinished_events_supersede_nothing", harness).await;
    let newer = desk.keeps(nth(2, "newer")).await;
    desk.retries(&desk.leases(&newer).await, Duration::ZERO, "flaky", Hold::Held).await;
    desk.buries(&desk.leases(&newer).await, "hopeless", Hold::Held).await;
    let older = desk.keeps(nth(1, "older")).await;
    desk.verify("superseded", desk.leases(&older).await.superseded, false);
}

/// What was never run was not applied.
pub async fn discarded_event_supersedes_nothing(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("discarded_event_supersedes_nothing", harness).await;
    let newer = desk.keeps(nth(2, "newer")).await;
    let came = desk.answered("discard", desk.inbox.discard(&Filter::one(newer.key), LONG).await);
    desk.verify("discarded", came, 1);
    let older = desk.keeps(nth(1, "older")).await;
    desk.verify("superseded", desk.leases(&older).await.superseded, false);
}

/// The last sequence that was applied is remembered for longer than its event. A replay by force does not change what is old.
pub async fn replayed_and_forgotten_events_stay_old_news(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("replayed_and_forgotten_events_stay_old_news", harness).await;
    let applied = desk.keeps(nth(5, "applied")).await;
    desk.completes(&desk.leases(&applied).await, Hold::Held).await;
    desk.requeues(&Filter::one(applied.key.clone()), true, 1).await;
    let replayed = desk.leases(&applied).await;
    desk.verify("superseded by itself", replayed.superseded, true);
    desk.completes(&replayed, Hold::Held).await;
    let came = desk.answered("forget", desk.inbox.forget(&Filter::one(applied.key)).await);
    desk.verify("forgotten", came, 1);
    let older = desk.keeps(nth(4, "older")).await;
    desk.verify("superseded by what is forgotten", desk.leases(&older).await.superseded, true);
}
