//! Bodies of completed events that are kept for a shorter time than their records (`keep_completed_bodies` of a store's
//! builder).

use std::time::Duration;

use super::super::Harness;
use super::super::fixture::{COMPLETED, LONG};
use super::fixture::{NewEvent, QueueFixture};
use crate::store::queue::{EventState, Filter, Page, Queue};
use crate::store::{Claim, Hold};

/// Runs the checks of this module. The harness builds stores that keep completed bodies for `kept`, which may be zero.
///
/// [`run`](super::run) does not include these checks.
///
/// # Panics
///
/// If a check fails, with its name and how it failed.
pub async fn run(harness: &impl Harness<Store: Queue>, kept: Duration) {
    completed_body_goes_before_its_record(harness, kept).await;
    bodies_that_are_still_needed_stay(harness, kept).await;
}

/// The record without its body still deduplicates, is listed, and tells a changed body.
pub async fn completed_body_goes_before_its_record(harness: &impl Harness<Store: Queue>, kept: Duration) {
    let queue = QueueFixture::new("completed_body_goes_before_its_record", harness).await;
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
pub async fn bodies_that_are_still_needed_stay(harness: &impl Harness<Store: Queue>, kept: Duration) {
    let queue = QueueFixture::new("bodies_that_are_still_needed_stay", harness).await;
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
