//! The endings of a leased event.

use std::time::Duration;

use super::super::Harness;
use super::super::fixture::{COMPLETED, LONG};
use super::fixture::{NewEvent, QueueFixture, ids};
use crate::store::queue::{EventState, Queue};
use crate::store::{Completion, Hold, Store};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    completed_event_has_its_summary(harness).await;
    released_event_is_leased_at_once_as_if_never_before(harness).await;
    released_event_takes_its_old_place(harness).await;
    retried_event_waits_for_its_time(harness).await;
    buried_event_is_dead_and_kept_whole(harness).await;
    completion_as_failed_buries(harness).await;
    dead_letter_outlives_every_retention(harness).await;
    settling_twice_is_settling_once(harness).await;
    long_reasons_with_odd_characters_are_kept(harness).await;
}

/// A completed event has its summary, and says when it was completed.
pub async fn completed_event_has_its_summary(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("completed_event_has_its_summary", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.completes(&queue.leases(&event).await, Hold::Held).await;
    let kept = queue.gets(&event).await;
    queue.verify("state", (kept.state, kept.attempts), (EventState::Completed, 1));
    queue.verify("summary", kept.summary.as_deref(), Some("OK"));
    queue.verify("whether it says when", kept.processed_at.is_some(), true);
    queue.leases_nothing().await;
}

/// A released event is due again, and the attempt does not count.
pub async fn released_event_is_leased_at_once_as_if_never_before(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("released_event_is_leased_at_once_as_if_never_before", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases(&event).await;
    queue.releases(&leased, Hold::Held).await;
    queue.is_in(&event, EventState::Waiting).await;
    queue.completes(&leased, Hold::Lost).await;
    let again = queue.leases(&event).await;
    queue.verify("attempt", again.attempt, 1);
    queue.verify("failures", queue.gets(&event).await.failures.len(), 0);
}

/// A released event is leased ahead of events that came later, however often it is released.
pub async fn released_event_takes_its_old_place(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("released_event_takes_its_old_place", harness).await;
    for id in ["a", "b", "c"] {
        queue.adds(NewEvent::new(id)).await;
        harness.pass(Duration::from_millis(2)).await;
    }
    for _ in 0..2 {
        let first = queue.lease(1, LONG).await.remove(0);
        queue.verify("first", first.key.id(), "a");
        harness.pass(Duration::from_millis(2)).await;
        queue.releases(&first, Hold::Held).await;
    }
    let all = queue.lease(10, LONG).await;
    queue.verify("all", ids(&all), vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]);
    // Two of the three are released, and not in their order.
    queue.releases(&all[2], Hold::Held).await;
    queue.releases(&all[1], Hold::Held).await;
    queue.adds(NewEvent::new("d")).await;
    let all = queue.lease(10, LONG).await;
    queue.verify("the rest", ids(&all), vec!["b".to_owned(), "c".to_owned(), "d".to_owned()]);
    // A retried event is due from its retry on.
    harness.pass(Duration::from_millis(2)).await;
    queue.retries(&all[0], Duration::ZERO, "not yet", Hold::Held).await;
    harness.pass(Duration::from_millis(2)).await;
    queue.releases(&all[2], Hold::Held).await;
    let rest = queue.lease(10, LONG).await;
    queue.verify("a retry is behind", ids(&rest), vec!["d".to_owned(), "b".to_owned()]);
    queue.releases(&rest[1], Hold::Held).await;
    let again = queue.lease(1, LONG).await.remove(0);
    queue.verify("attempt of the retry", (again.key.id(), again.attempt), ("b", 2));
}

/// A retried event is not leased before its time, and its log has the reason.
pub async fn retried_event_waits_for_its_time(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("retried_event_waits_for_its_time", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases(&event).await;
    queue.retries(&leased, harness.lease(), "the first", Hold::Held).await;
    queue.is_in(&event, EventState::Waiting).await;
    queue.leases_nothing().await;
    queue.completes(&leased, Hold::Lost).await;
    harness.pass(harness.lease() * 2).await;
    let leased = queue.leases(&event).await;
    queue.verify("attempt", leased.attempt, 2);
    queue.retries(&leased, Duration::ZERO, "the second", Hold::Held).await;
    let leased = queue.leases(&event).await;
    queue.verify("attempt", leased.attempt, 3);
    queue.completes(&leased, Hold::Held).await;
    let kept = queue.gets(&event).await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    queue.verify("reasons", reasons.as_slice(), &["the first", "the second"]);
    queue.verify("times", kept.failures.iter().all(|attempt| attempt.started_at <= attempt.ended_at), true);
}

/// A buried event keeps its request, its reason and its failures, and is not run again.
pub async fn buried_event_is_dead_and_kept_whole(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("buried_event_is_dead_and_kept_whole", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.retries(&queue.leases(&event).await, Duration::ZERO, "flaky", Hold::Held).await;
    queue.buries(&queue.leases(&event).await, "hopeless", Hold::Held).await;
    queue.leases_nothing().await;
    let kept = queue.gets(&event).await;
    queue.verify("state", (kept.state, kept.attempts), (EventState::Dead, 2));
    queue.verify("summary", kept.summary.as_deref(), Some("hopeless"));
    queue.verify("request", kept.request.as_ref(), Some(&event.request));
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    queue.verify("reasons", reasons.as_slice(), &["flaky", "hopeless"]);
    queue.claims(&event, COMPLETED).await;
}

/// A completion as failed makes a queued event a dead letter.
pub async fn completion_as_failed_buries(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("completion_as_failed_buries", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases(&event).await;
    let came =
        queue.store.complete(&leased.claim(LONG), &Completion::failed("no such account", harness.retention())).await;
    queue.verify("complete", queue.answered("complete", came), Hold::Held);
    harness.pass(harness.retention() * 2).await;
    queue.is_in(&event, EventState::Dead).await;
}

/// A dead letter stays until an operator removes it.
pub async fn dead_letter_outlives_every_retention(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("dead_letter_outlives_every_retention", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.buries(&queue.leases(&event).await, "hopeless", Hold::Held).await;
    harness.pass(harness.retention() * 2).await;
    queue.claims(&event, COMPLETED).await;
    queue.is_in(&event, EventState::Dead).await;
}

/// A settlement whose reply was lost is repeated, and changes nothing.
pub async fn settling_twice_is_settling_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("settling_twice_is_settling_once", harness).await;
    let done = queue.adds(NewEvent::new("done")).await;
    let leased = queue.leases(&done).await;
    queue.completes(&leased, Hold::Held).await;
    queue.completes(&leased, Hold::Held).await;
    queue.releases(&leased, Hold::Lost).await;

    let dead = queue.adds(NewEvent::new("dead")).await;
    let leased = queue.leases(&dead).await;
    queue.buries(&leased, "hopeless", Hold::Held).await;
    queue.buries(&leased, "hopeless", Hold::Held).await;
    queue.releases(&leased, Hold::Lost).await;
    queue.verify("failures", queue.gets(&dead).await.failures.len(), 1);

    let later = queue.adds(NewEvent::new("later")).await;
    let leased = queue.leases(&later).await;
    queue.retries(&leased, LONG, "not now", Hold::Held).await;
    queue.retries(&leased, LONG, "not now", Hold::Held).await;
    queue.verify("failures", queue.gets(&later).await.failures.len(), 1);
}

/// Reasons may be any text. A store may replace line ends and NUL.
pub async fn long_reasons_with_odd_characters_are_kept(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("long_reasons_with_odd_characters_are_kept", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let reason = format!("{} 'quoted' \"twice\" \\ % ☃ {{}}", "é".repeat(200));
    queue.retries(&queue.leases(&event).await, Duration::ZERO, &reason, Hold::Held).await;
    queue.retries(&queue.leases(&event).await, Duration::ZERO, "", Hold::Held).await;
    queue.buries(&queue.leases(&event).await, "two\nlines\0", Hold::Held).await;
    let kept = queue.gets(&event).await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    queue.verify("failures", reasons.len(), 3);
    queue.verify("reasons", &reasons[..2], &[&*reason, ""]);
}
