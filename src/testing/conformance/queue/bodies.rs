//! Stores that keep completed bodies for a shorter time than records (`keep_completed_bodies` of their builders).

use std::time::Duration;

use super::super::Harness;
use super::super::bench::{COMPLETED, LONG};
use super::bench::{Desk, Draft};
use crate::store::queue::{EventState, Filter, Page, Queue};
use crate::store::{Claim, Hold};

/// Runs the checks of this module. The harness builds stores that keep completed bodies for `kept`, which may be zero.
///
/// [`run`](super::run) does not include these checks.
///
/// # Panics
///
/// If one fails, saying which and how.
pub async fn run(harness: &impl Harness<Store: Queue>, kept: Duration) {
    completed_body_goes_before_its_record(harness, kept).await;
    bodies_that_are_still_needed_stay(harness, kept).await;
}

/// The record still deduplicates, is listed, and tells a changed body.
pub async fn completed_body_goes_before_its_record(harness: &impl Harness<Store: Queue>, kept: Duration) {
    let desk = Desk::new("completed_body_goes_before_its_record", harness).await;
    let done = desk.keeps(Draft::new("done")).await;
    desk.completes(&desk.leases(&done).await, Hold::Held).await;
    let discarded = desk.keeps(Draft::new("discarded")).await;
    let filter = Filter::one(discarded.key.clone());
    desk.verify("discarded", desk.answered("discard", desk.inbox.discard(&filter, LONG).await), 1);
    if kept > Duration::ZERO {
        desk.verify("body, at first", desk.kept(&done).await.request, Some(done.request.clone()));
    }
    harness.pass(kept * 2).await;
    for event in [&done, &discarded] {
        let came = desk.kept(event).await;
        desk.verify("body, later", (came.request, came.state), (None, EventState::Completed));
        desk.claims(event, COMPLETED).await;
        desk.accepts(event, COMPLETED).await;
        let mut changed = event.clone();
        changed.request.body = "other bytes".into();
        desk.claims(&changed, Claim::Completed { same_body: false }).await;
    }
    desk.lists(&Filter::all().state(EventState::Completed), &["done", "discarded"]).await;
    for completed_too in [false, true] {
        let came = desk.answered("requeue", desk.inbox.requeue(&Filter::all(), completed_too).await);
        let without_body = if completed_too { 2 } else { 0 };
        desk.verify("requeue", (came.events, came.without_body), (0, without_body));
    }
    desk.leases_nothing().await;
    desk.verify("forgotten", desk.answered("forget", desk.inbox.forget(&Filter::all()).await), 2);
    let listed = desk.answered("list", desk.inbox.list(&Filter::all(), &Page::first(9)).await);
    desk.verify("left", listed.len(), 0);
    // As if it had never been: with its body again.
    desk.keeps(done.clone()).await;
    desk.verify("body, accepted anew", desk.leases(&done).await.request, done.request);
}

/// Of waiting, running and dead events, and of one that is requeued in time.
pub async fn bodies_that_are_still_needed_stay(harness: &impl Harness<Store: Queue>, kept: Duration) {
    let desk = Desk::new("bodies_that_are_still_needed_stay", harness).await;
    let dead = desk.keeps(Draft::new("dead")).await;
    desk.buries(&desk.leases(&dead).await, "hopeless", Hold::Held).await;
    let running = desk.keeps(Draft::new("running")).await;
    desk.leases(&running).await;
    let requeued = (kept > Duration::ZERO).then(|| Draft::new("requeued"));
    if let Some(requeued) = &requeued {
        desk.keeps(requeued.clone()).await;
        desk.completes(&desk.leases(requeued).await, Hold::Held).await;
        desk.requeues(&Filter::one(requeued.key.clone()), true, 1).await;
    }
    let waiting = desk.keeps(Draft::new("waiting")).await;
    harness.pass(kept * 2).await;
    for event in [&dead, &running, &waiting].into_iter().chain(&requeued) {
        desk.verify("body", desk.kept(event).await.request, Some(event.request.clone()));
    }
    desk.requeues(&Filter::one(dead.key.clone()), false, 1).await;
    desk.verify("body of the dead letter", desk.kept(&dead).await.request, Some(dead.request));
}
