//! What becomes of an event that was leased.

use std::time::Duration;

use super::super::Harness;
use super::super::bench::{COMPLETED, LONG};
use super::bench::{Desk, Draft, ids};
use crate::store::queue::{EventState, Queue};
use crate::store::{Completion, Hold, Store};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    completed_event_is_done(harness).await;
    released_event_is_leased_at_once_as_if_never_before(harness).await;
    released_event_takes_its_old_place(harness).await;
    retried_event_waits_for_its_time(harness).await;
    buried_event_is_dead_and_kept_whole(harness).await;
    completion_as_failed_is_a_burial(harness).await;
    dead_letter_outlives_every_retention(harness).await;
    settling_twice_is_settling_once(harness).await;
    long_reasons_with_odd_characters_are_kept(harness).await;
}

/// With its summary and when.
pub async fn completed_event_is_done(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("completed_event_is_done", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.completes(&desk.leases(&event).await, Hold::Held).await;
    let kept = desk.kept(&event).await;
    desk.verify("state", (kept.state, kept.attempts), (EventState::Completed, 1));
    desk.verify("summary", kept.summary.as_deref(), Some("OK"));
    desk.verify("whether it says when", kept.processed_at.is_some(), true);
    desk.leases_nothing().await;
}

/// It is put back, and that is no attempt.
pub async fn released_event_is_leased_at_once_as_if_never_before(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("released_event_is_leased_at_once_as_if_never_before", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases(&event).await;
    desk.releases(&leased, Hold::Held).await;
    desk.is_in(&event, EventState::Waiting).await;
    desk.completes(&leased, Hold::Lost).await;
    let again = desk.leases(&event).await;
    desk.verify("attempt", again.attempt, 1);
    desk.verify("failures", desk.kept(&event).await.failures.len(), 0);
}

/// Ahead of whatever came later, however often it is released.
pub async fn released_event_takes_its_old_place(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("released_event_takes_its_old_place", harness).await;
    for id in ["a", "b", "c"] {
        desk.keeps(Draft::new(id)).await;
        harness.pass(Duration::from_millis(2)).await;
    }
    for _ in 0..2 {
        let first = desk.lease(1, LONG).await.remove(0);
        desk.verify("first", first.key.id(), "a");
        harness.pass(Duration::from_millis(2)).await;
        desk.releases(&first, Hold::Held).await;
    }
    let all = desk.lease(10, LONG).await;
    desk.verify("all", ids(&all), vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    // Out of order, and some of them.
    desk.releases(&all[2], Hold::Held).await;
    desk.releases(&all[1], Hold::Held).await;
    desk.keeps(Draft::new("d")).await;
    let all = desk.lease(10, LONG).await;
    desk.verify("the rest", ids(&all), vec!["b".to_owned(), "c".to_owned(), "d".to_owned()]);
    // A retry has a time of its own.
    harness.pass(Duration::from_millis(2)).await;
    desk.retries(&all[0], Duration::ZERO, "not yet", Hold::Held).await;
    harness.pass(Duration::from_millis(2)).await;
    desk.releases(&all[2], Hold::Held).await;
    let rest = desk.lease(10, LONG).await;
    desk.verify("a retry is behind", ids(&rest), vec!["d".to_owned(), "b".to_owned()]);
    desk.releases(&rest[1], Hold::Held).await;
    let again = desk.lease(1, LONG).await.remove(0);
    desk.verify("attempt of the retry", (again.key.id(), again.attempt), ("b", 2));
}

/// Not before, and with its reason noted down.
pub async fn retried_event_waits_for_its_time(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("retried_event_waits_for_its_time", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases(&event).await;
    desk.retries(&leased, harness.lease(), "the first", Hold::Held).await;
    desk.is_in(&event, EventState::Waiting).await;
    desk.leases_nothing().await;
    desk.completes(&leased, Hold::Lost).await;
    harness.pass(harness.lease() * 2).await;
    let leased = desk.leases(&event).await;
    desk.verify("attempt", leased.attempt, 2);
    desk.retries(&leased, Duration::ZERO, "the second", Hold::Held).await;
    let leased = desk.leases(&event).await;
    desk.verify("attempt", leased.attempt, 3);
    desk.completes(&leased, Hold::Held).await;
    let kept = desk.kept(&event).await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    desk.verify("reasons", reasons.as_slice(), &["the first", "the second"]);
    desk.verify("times", kept.failures.iter().all(|attempt| attempt.started_at <= attempt.ended_at), true);
}

/// Bytes, reason and attempts are there; it is not run again.
pub async fn buried_event_is_dead_and_kept_whole(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("buried_event_is_dead_and_kept_whole", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.retries(&desk.leases(&event).await, Duration::ZERO, "flaky", Hold::Held).await;
    desk.buries(&desk.leases(&event).await, "hopeless", Hold::Held).await;
    desk.leases_nothing().await;
    let kept = desk.kept(&event).await;
    desk.verify("state", (kept.state, kept.attempts), (EventState::Dead, 2));
    desk.verify("summary", kept.summary.as_deref(), Some("hopeless"));
    desk.verify("request", kept.request.as_ref(), Some(&event.request));
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    desk.verify("reasons", reasons.as_slice(), &["flaky", "hopeless"]);
    desk.claims(&event, COMPLETED).await;
}

/// As the store's own verb has it.
pub async fn completion_as_failed_is_a_burial(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("completion_as_failed_is_a_burial", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases(&event).await;
    let came =
        desk.inbox.complete(&leased.claim(LONG), &Completion::failed("no such account", harness.retention())).await;
    desk.verify("complete", desk.answered("complete", came), Hold::Held);
    harness.pass(harness.retention() * 2).await;
    desk.is_in(&event, EventState::Dead).await;
}

/// Nobody but an operator takes it away.
pub async fn dead_letter_outlives_every_retention(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("dead_letter_outlives_every_retention", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.buries(&desk.leases(&event).await, "hopeless", Hold::Held).await;
    harness.pass(harness.retention() * 2).await;
    desk.claims(&event, COMPLETED).await;
    desk.is_in(&event, EventState::Dead).await;
}

/// A reply may be lost, and the verb repeated.
pub async fn settling_twice_is_settling_once(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("settling_twice_is_settling_once", harness).await;
    let done = desk.keeps(Draft::new("done")).await;
    let leased = desk.leases(&done).await;
    desk.completes(&leased, Hold::Held).await;
    desk.completes(&leased, Hold::Held).await;
    desk.releases(&leased, Hold::Lost).await;

    let dead = desk.keeps(Draft::new("dead")).await;
    let leased = desk.leases(&dead).await;
    desk.buries(&leased, "hopeless", Hold::Held).await;
    desk.buries(&leased, "hopeless", Hold::Held).await;
    desk.releases(&leased, Hold::Lost).await;
    desk.verify("failures", desk.kept(&dead).await.failures.len(), 1);

    let later = desk.keeps(Draft::new("later")).await;
    let leased = desk.leases(&later).await;
    desk.retries(&leased, LONG, "not now", Hold::Held).await;
    desk.retries(&leased, LONG, "not now", Hold::Held).await;
    desk.verify("failures", desk.kept(&later).await.failures.len(), 1);
}

/// Reasons are whatever handlers say. Line ends and NUL may be replaced.
pub async fn long_reasons_with_odd_characters_are_kept(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("long_reasons_with_odd_characters_are_kept", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let reason = format!("{} 'quoted' \"twice\" \\ % ☃ {{}}", "é".repeat(200));
    desk.retries(&desk.leases(&event).await, Duration::ZERO, &reason, Hold::Held).await;
    desk.retries(&desk.leases(&event).await, Duration::ZERO, "", Hold::Held).await;
    desk.buries(&desk.leases(&event).await, "two\nlines\0", Hold::Held).await;
    let kept = desk.kept(&event).await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    desk.verify("failures", reasons.len(), 3);
    desk.verify("reasons", &reasons[..2], &[&*reason, ""]);
}
