//! Who gets an event, and for how long.

use std::time::Duration;

use super::super::Harness;
use super::super::bench::LONG;
use super::bench::{Desk, Draft, ids};
use crate::store::Hold;
use crate::store::queue::{Filter, KindLimits, LAPSED, LeaseRequest, Queue};

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    events_are_leased_in_the_order_of_their_arrival(harness).await;
    no_more_are_leased_than_asked_for(harness).await;
    leased_event_is_nobody_elses(harness).await;
    lapsed_event_is_leased_again_and_its_first_worker_is_fenced(harness).await;
    renewed_event_is_kept(harness).await;
    lapsed_lease_that_nobody_took_can_be_completed(harness).await;
    kinds_are_left_out(harness).await;
    no_more_of_a_kind_is_leased_than_it_has_room_for(harness).await;
    start_is_remembered_and_renews(harness).await;
    waiting_events_are_counted_up_to_a_limit(harness).await;
    arrival_wakes(harness).await;
}

/// First in, first out.
pub async fn events_are_leased_in_the_order_of_their_arrival(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("events_are_leased_in_the_order_of_their_arrival", harness).await;
    for id in ["b", "a", "d", "c"] {
        desk.keeps(Draft::new(id)).await;
    }
    let first = desk.lease(3, LONG).await;
    desk.verify("lease", ids(&first), vec!["b".into(), "a".into(), "d".into()]);
    let rest = desk.lease(3, LONG).await;
    desk.verify("lease", ids(&rest), vec!["c".into()]);
}

/// The limit is one.
pub async fn no_more_are_leased_than_asked_for(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("no_more_are_leased_than_asked_for", harness).await;
    desk.leases_nothing().await;
    for id in ["a", "b"] {
        desk.keeps(Draft::new(id)).await;
    }
    desk.verify("leases of none", desk.lease(0, LONG).await.len(), 0);
    desk.verify("leases of one", desk.lease(1, LONG).await.len(), 1);
}

/// A lease holds.
pub async fn leased_event_is_nobody_elses(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("leased_event_is_nobody_elses", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases(&event).await;
    desk.leases_nothing().await;
    desk.renews(&leased, LONG, Hold::Held).await;
}

/// A worker that is gone is replaced; if it comes back, it can do nothing.
pub async fn lapsed_event_is_leased_again_and_its_first_worker_is_fenced(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("lapsed_event_is_leased_again_and_its_first_worker_is_fenced", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let gone = desk.leases_for(harness.lease(), &event).await;
    harness.pass(harness.lease() * 2).await;
    let leased = desk.leases(&event).await;
    desk.verify("attempt", leased.attempt, 2);
    desk.verify("request", &leased.request, &event.request);
    desk.renews(&gone, LONG, Hold::Lost).await;
    desk.completes(&gone, Hold::Lost).await;
    desk.releases(&gone, Hold::Lost).await;
    desk.retries(&gone, Duration::ZERO, "late", Hold::Lost).await;
    desk.buries(&gone, "late", Hold::Lost).await;
    let kept = desk.kept(&event).await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    desk.verify("failures", reasons.as_slice(), &[LAPSED]);
    desk.completes(&leased, Hold::Held).await;
}

/// A renewed lease does not lapse.
pub async fn renewed_event_is_kept(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("renewed_event_is_kept", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases_for(harness.lease(), &event).await;
    desk.renews(&leased, LONG, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    desk.leases_nothing().await;
    desk.completes(&leased, Hold::Held).await;
}

/// Fencing is by token and not by clock.
pub async fn lapsed_lease_that_nobody_took_can_be_completed(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("lapsed_lease_that_nobody_took_can_be_completed", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases_for(harness.lease(), &event).await;
    harness.pass(harness.lease() * 2).await;
    desk.completes(&leased, Hold::Held).await;
    desk.leases_nothing().await;
}

/// By endpoint and by type.
pub async fn kinds_are_left_out(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("kinds_are_left_out", harness).await;
    let mut untyped = Draft::new("untyped").at("/b");
    untyped.event_type = None;
    for draft in [
        Draft::new("slow").at("/a").of_type("slow"),
        Draft::new("quick").at("/a").of_type("quick"),
        Draft::new("slow at b").at("/b").of_type("slow"),
        untyped,
        Draft::new("c").at("/c").of_type("quick"),
    ] {
        desk.keeps(draft).await;
    }
    let b = [Box::<str>::from("/b")];
    let [a, slow] = ["/a", "slow"].map(|name| KindLimits::new(10).with(name, 0));
    let mut request = LeaseRequest::new(10, harness.lease());
    (request.endpoints, request.per_type) = (&b, Some(&slow));
    desk.verify("only /b, not slow", ids(&desk.lease_by(&request).await), vec!["untyped".to_owned()]);
    let mut request = LeaseRequest::new(10, harness.lease());
    (request.per_endpoint, request.per_type) = (Some(&a), Some(&slow));
    desk.verify("not /a, not slow", ids(&desk.lease_by(&request).await), vec!["c".to_owned()]);
    let mut request = LeaseRequest::new(10, harness.lease());
    request.per_endpoint = Some(&a);
    desk.verify("not /a", ids(&desk.lease_by(&request).await), vec!["slow at b".to_owned()]);
    desk.verify("all", ids(&desk.lease(10, LONG).await), vec!["slow".to_owned(), "quick".to_owned()]);
}

/// What is beyond that stays where it is, and others are leased in its place.
pub async fn no_more_of_a_kind_is_leased_than_it_has_room_for(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("no_more_of_a_kind_is_leased_than_it_has_room_for", harness).await;
    for (id, endpoint, event_type) in [
        ("a1", "/a", "x"),
        ("a2", "/a", "x"),
        ("a3", "/a", "y"),
        ("b1", "/b", "x"),
        ("a4", "/a", "y"),
        ("b2", "/b", "z"),
        ("c1", "/c", "z"),
    ] {
        desk.keeps(Draft::new(id).at(endpoint).of_type(event_type)).await;
    }
    let mut untyped = Draft::new("untyped").at("/c");
    untyped.event_type = None;
    desk.keeps(untyped).await;
    let (per_endpoint, per_type) = (KindLimits::new(2).with("/b", 1), KindLimits::new(1).with("z", 2));
    let mut request = LeaseRequest::new(10, LONG);
    (request.per_endpoint, request.per_type) = (Some(&per_endpoint), Some(&per_type));
    let lease = || async { ids(&desk.lease_by(&request).await) };
    let to_strings = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    desk.verify("the first of each", lease().await, to_strings(&["a1", "a3", "b2", "c1", "untyped"]));
    desk.verify("the second of each", lease().await, to_strings(&["a2", "a4"]));
    let mut request = LeaseRequest::new(10, LONG);
    request.per_endpoint = Some(&per_endpoint);
    desk.verify("the rest", ids(&desk.lease_by(&request).await), to_strings(&["b1"]));
}

/// From then on, whatever becomes of the lease; requeued, the event begins anew.
pub async fn start_is_remembered_and_renews(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("start_is_remembered_and_renews", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    let leased = desk.leases_for(harness.lease(), &event).await;
    desk.verify("started", leased.started, false);
    harness.pass(harness.lease() * 2).await;
    let leased = desk.leases_for(harness.lease(), &event).await;
    desk.verify("started, once lapsed", leased.started, false);
    desk.starts(&leased, LONG, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    desk.leases_nothing().await;
    desk.starts(&leased, harness.lease(), Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    let again = desk.leases(&event).await;
    desk.verify("started, lapsed again", (again.started, again.attempt), (true, 3));
    desk.starts(&leased, LONG, Hold::Lost).await;
    desk.retries(&again, Duration::ZERO, "not yet", Hold::Held).await;
    let again = desk.leases(&event).await;
    desk.verify("started, retried", again.started, true);
    desk.releases(&again, Hold::Held).await;
    let again = desk.leases(&event).await;
    desk.verify("started, released", again.started, false);
    desk.starts(&again, LONG, Hold::Held).await;
    desk.buries(&again, "hopeless", Hold::Held).await;
    desk.requeues(&Filter::one(event.key.clone()), false, 1).await;
    desk.verify("started, requeued", desk.leases(&event).await.started, false);
}

/// Events that run are not waiting.
pub async fn waiting_events_are_counted_up_to_a_limit(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("waiting_events_are_counted_up_to_a_limit", harness).await;
    for id in ["a", "b", "c", "d"] {
        desk.keeps(Draft::new(id)).await;
    }
    let leased = desk.lease(1, LONG).await.remove(0);
    for (up_to, expected) in [(0, 0), (2, 2), (3, 3), (10, 3)] {
        desk.verify("waiting", desk.answered("waiting", desk.inbox.waiting(up_to).await), expected);
    }
    desk.retries(&leased, LONG, "later", Hold::Held).await;
    desk.verify("waiting", desk.answered("waiting", desk.inbox.waiting(10).await), 4);
}

/// Whoever waits is told. That is a courtesy, but one that every inbox of this crate extends.
pub async fn arrival_wakes(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("arrival_wakes", harness).await;
    // What there was before may be told, too.
    let _ = tokio::time::timeout(Duration::from_millis(200), desk.inbox.wake()).await;
    let woken = desk.inbox.wake();
    desk.keeps(Draft::new("evt_1")).await;
    if tokio::time::timeout(Duration::from_secs(10), woken).await.is_err() {
        desk.fail("wake", &"ready", &"nothing within ten seconds");
    }
}
