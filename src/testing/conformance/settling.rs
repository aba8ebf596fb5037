//! The endings of a leased event, and the bodies of completed events.

use std::time::Duration;

use super::fixture::{COMPLETED, LONG};
use super::queue_fixture::{NewEvent, QueueFixture, ids};
use super::suite::{Case, Harness, cases};
use crate::store::queue::{EventState, Filter, Page, Queue};
use crate::store::{Claim, Completion, Hold, Store};

pub(super) fn cases<H: Harness<Store: Queue>>() -> Vec<Case<H>> {
    cases![
        completed_event_has_its_summary,
        released_event_is_leased_at_once_as_if_never_before,
        released_event_takes_its_old_place,
        retried_event_waits_for_its_time,
        buried_event_is_dead_and_kept_whole,
        completion_as_failed_buries,
        dead_letter_outlives_every_retention,
        settling_twice_is_settling_once,
        long_reasons_with_odd_characters_are_kept,
    ]
}

/// The cases of stores that keep the bodies of completed events for `kept`.
pub(super) fn body_cases<H: Harness<Store: Queue>>(kept: Duration) -> Vec<Case<H>> {
    vec![
        Case::new("completed_body_goes_before_its_record", move |harness| {
            Box::pin(completed_body_goes_before_its_record(harness, kept))
        }),
        Case::new("bodies_that_are_still_needed_stay", move |harness| {
            Box::pin(bodies_that_are_still_needed_stay(harness, kept))
        }),
    ]
}

/// A completed event has its summary, and says when it was completed.
async fn completed_event_has_its_summary(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.completes(&queue.leases(&event).await, Hold::Held).await;
    let kept = queue.gets(&event).await;
    queue.verify("state", (kept.state, kept.attempts), (EventState::Completed, 1));
    queue.verify("summary", kept.summary.as_deref(), Some("OK"));
    queue.verify("whether it says when", kept.processed_at.is_some(), true);
    queue.leases_nothing().await;
}

/// A released event is due again, and the attempt does not count.
async fn released_event_is_leased_at_once_as_if_never_before(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn released_event_takes_its_old_place(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn retried_event_waits_for_its_time(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn buried_event_is_dead_and_kept_whole(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn completion_as_failed_buries(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases(&event).await;
    let came =
        queue.store.complete(&leased.claim(LONG), &Completion::failed("no such account", harness.retention())).await;
    queue.verify("complete", queue.answered("complete", came), Hold::Held);
    harness.pass(harness.retention() * 2).await;
    queue.is_in(&event, EventState::Dead).await;
}

/// A dead letter stays until an operator removes it.
async fn dead_letter_outlives_every_retention(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.buries(&queue.leases(&event).await, "hopeless", Hold::Held).await;
    harness.pass(harness.retention() * 2).await;
    queue.claims(&event, COMPLETED).await;
    queue.is_in(&event, EventState::Dead).await;
}

/// A settlement whose reply was lost is repeated, and changes nothing.
async fn settling_twice_is_settling_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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

    // A queue need not remember a release, so either answer is right to the second one.
    let released = queue.adds(NewEvent::new("released")).await;
    let leased = queue.leases(&released).await;
    queue.releases(&leased, Hold::Held).await;
    let _ = queue.answered("release", queue.store.release(&leased.key, leased.token).await);
    queue.is_in(&released, EventState::Waiting).await;
    queue.verify("attempt", queue.leases(&released).await.attempt, 1);
}

/// Reasons may be any text. A store may replace line ends and NUL.
async fn long_reasons_with_odd_characters_are_kept(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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

/// The record without its body still deduplicates, is listed, and tells a changed body.
async fn completed_body_goes_before_its_record(harness: &impl Harness<Store: Queue>, kept: Duration) {
    let queue = QueueFixture::new(harness).await;
    let done = queue.adds(NewEvent::new("done")).await;
    queue.completes(&queue.leases(&done).await, Hold::Held).await;
    let discarded = queue.adds(NewEvent::new("discarded")).await;
    let filter = Filter::one(discarded.key.clone());
    queue.verify("discarded", queue.answered("discard", queue.store.discard(&filter, LONG).await), 1);
    if kept > Duration::ZERO {
        queue.verify("body, at first", queue.gets(&done).await.request, Some(done.request.clone()));
    }
    harness.pass(kept * 2).await;
    for event in [&done, &discarded] {
        let came = queue.gets(event).await;
        queue.verify("body, later", (came.request, came.state), (None, EventState::Completed));
        queue.claims(event, COMPLETED).await;
        queue.enqueues(event, COMPLETED).await;
        let mut changed = event.clone();
        changed.request.body = "other bytes".into();
        queue.claims(&changed, Claim::Completed { same_body: false }).await;
    }
    queue.lists(&Filter::all().state(EventState::Completed), &["done", "discarded"]).await;
    for completed_too in [false, true] {
        let came = queue.answered("requeue", queue.store.requeue(&Filter::all(), completed_too).await);
        let without_body = if completed_too { 2 } else { 0 };
        queue.verify("requeue", (came.events, came.without_body), (0, without_body));
    }
    queue.leases_nothing().await;
    queue.verify("forgotten", queue.answered("forget", queue.store.forget(&Filter::all()).await), 2);
    let listed = queue.answered("list", queue.store.list(&Filter::all(), &Page::first(9)).await);
    queue.verify("left", listed.len(), 0);
    // A forgotten event can be enqueued again, with its body.
    queue.adds(done.clone()).await;
    queue.verify("body, accepted anew", queue.leases(&done).await.request, done.request);
}

/// Waiting, running and dead events keep their bodies, and so does an event that is requeued in time.
async fn bodies_that_are_still_needed_stay(harness: &impl Harness<Store: Queue>, kept: Duration) {
    let queue = QueueFixture::new(harness).await;
    let dead = queue.adds(NewEvent::new("dead")).await;
    queue.buries(&queue.leases(&dead).await, "hopeless", Hold::Held).await;
    let running = queue.adds(NewEvent::new("running")).await;
    queue.leases(&running).await;
    let requeued = (kept > Duration::ZERO).then(|| NewEvent::new("requeued"));
    if let Some(requeued) = &requeued {
        queue.adds(requeued.clone()).await;
        queue.completes(&queue.leases(requeued).await, Hold::Held).await;
        queue.requeues(&Filter::one(requeued.key.clone()), true, 1).await;
    }
    let waiting = queue.adds(NewEvent::new("waiting")).await;
    harness.pass(kept * 2).await;
    for event in [&dead, &running, &waiting].into_iter().chain(&requeued) {
        queue.verify("body", queue.gets(event).await.request, Some(event.request.clone()));
    }
    queue.requeues(&Filter::one(dead.key.clone()), false, 1).await;
    queue.verify("body of the dead letter", queue.gets(&dead).await.request, Some(dead.request));
}
