//! Which events a lease takes, and how long it holds.

use std::time::Duration;

use super::fixture::LONG;
use super::queue_fixture::{NewEvent, QueueFixture, ids};
use super::suite::{Case, Harness, cases};
use crate::store::Hold;
use crate::store::queue::{Filter, KindLimits, LAPSED, LeaseRequest, Queue};

pub(super) fn cases<H: Harness<Store: Queue>>() -> Vec<Case<H>> {
    cases![
        events_are_leased_in_the_order_of_their_arrival,
        no_more_are_leased_than_asked_for,
        leased_event_is_nobody_elses,
        lapsed_event_is_leased_again_and_its_first_worker_is_fenced,
        renewed_event_is_kept,
        lapsed_lease_that_nobody_took_can_be_completed,
        kinds_are_left_out,
        no_more_of_a_kind_is_leased_than_it_has_room_for,
        start_is_remembered_and_renews,
        waiting_events_are_counted_up_to_a_limit,
        arrival_wakes,
    ]
}

/// Events are leased first in, first out.
async fn events_are_leased_in_the_order_of_their_arrival(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    for id in ["b", "a", "d", "c"] {
        queue.adds(NewEvent::new(id)).await;
    }
    let first = queue.lease(3, LONG).await;
    queue.verify("lease", ids(&first), vec!["b".into(), "a".into(), "d".into()]);
    let rest = queue.lease(3, LONG).await;
    queue.verify("lease", ids(&rest), vec!["c".into()]);
}

/// A lease takes no more events than its limit.
async fn no_more_are_leased_than_asked_for(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    queue.leases_nothing().await;
    for id in ["a", "b"] {
        queue.adds(NewEvent::new(id)).await;
    }
    queue.verify("leases of none", queue.lease(0, LONG).await.len(), 0);
    queue.verify("leases of one", queue.lease(1, LONG).await.len(), 1);
}

/// A leased event is not leased again while its lease holds.
async fn leased_event_is_nobody_elses(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases(&event).await;
    queue.leases_nothing().await;
    queue.renews(&leased, LONG, Hold::Held).await;
}

/// A worker that is gone is replaced. If it comes back, its verbs are `Lost`.
async fn lapsed_event_is_leased_again_and_its_first_worker_is_fenced(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let gone = queue.leases_for(harness.lease(), &event).await;
    harness.pass(harness.lease() * 2).await;
    let leased = queue.leases(&event).await;
    queue.verify("attempt", leased.attempt, 2);
    queue.verify("request", &leased.request, &event.request);
    queue.renews(&gone, LONG, Hold::Lost).await;
    queue.completes(&gone, Hold::Lost).await;
    queue.releases(&gone, Hold::Lost).await;
    queue.retries(&gone, Duration::ZERO, "late", Hold::Lost).await;
    queue.buries(&gone, "late", Hold::Lost).await;
    let kept = queue.gets(&event).await;
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    queue.verify("failures", reasons.as_slice(), &[LAPSED]);
    queue.completes(&leased, Hold::Held).await;
}

/// A renewed lease does not lapse.
async fn renewed_event_is_kept(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases_for(harness.lease(), &event).await;
    queue.renews(&leased, LONG, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    queue.leases_nothing().await;
    queue.completes(&leased, Hold::Held).await;
}

/// Fencing is by token and not by clock: the work of a lapsed lease counts until another worker leases the event.
async fn lapsed_lease_that_nobody_took_can_be_completed(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases_for(harness.lease(), &event).await;
    harness.pass(harness.lease() * 2).await;
    queue.completes(&leased, Hold::Held).await;
    queue.leases_nothing().await;
}

/// A lease leaves out endpoints and types that it does not want.
async fn kinds_are_left_out(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let mut untyped = NewEvent::new("untyped").at("/b");
    untyped.event_type = None;
    for draft in [
        NewEvent::new("slow").at("/a").of_type("slow"),
        NewEvent::new("quick").at("/a").of_type("quick"),
        NewEvent::new("slow at b").at("/b").of_type("slow"),
        untyped,
        NewEvent::new("c").at("/c").of_type("quick"),
    ] {
        queue.adds(draft).await;
    }
    let b = [Box::<str>::from("/b")];
    let [a, slow] = ["/a", "slow"].map(|name| KindLimits::new(10).with(name, 0));
    let mut request = LeaseRequest::new(10, harness.lease());
    (request.endpoints, request.per_type) = (&b, Some(&slow));
    queue.verify("only /b, not slow", ids(&queue.lease_by(&request).await), vec!["untyped".to_owned()]);
    let mut request = LeaseRequest::new(10, harness.lease());
    (request.per_endpoint, request.per_type) = (Some(&a), Some(&slow));
    queue.verify("not /a, not slow", ids(&queue.lease_by(&request).await), vec!["c".to_owned()]);
    let mut request = LeaseRequest::new(10, harness.lease());
    request.per_endpoint = Some(&a);
    queue.verify("not /a", ids(&queue.lease_by(&request).await), vec!["slow at b".to_owned()]);
    queue.verify("all", ids(&queue.lease(10, LONG).await), vec!["slow".to_owned(), "quick".to_owned()]);
}

/// Events of a kind without room stay queued, and events of other kinds are leased instead.
async fn no_more_of_a_kind_is_leased_than_it_has_room_for(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    for (id, endpoint, event_type) in [
        ("a1", "/a", "x"),
        ("a2", "/a", "x"),
        ("a3", "/a", "y"),
        ("b1", "/b", "x"),
        ("a4", "/a", "y"),
        ("b2", "/b", "z"),
        ("c1", "/c", "z"),
    ] {
        queue.adds(NewEvent::new(id).at(endpoint).of_type(event_type)).await;
    }
    let mut untyped = NewEvent::new("untyped").at("/c");
    untyped.event_type = None;
    queue.adds(untyped).await;
    let (per_endpoint, per_type) = (KindLimits::new(2).with("/b", 1), KindLimits::new(1).with("z", 2));
    let mut request = LeaseRequest::new(10, LONG);
    (request.per_endpoint, request.per_type) = (Some(&per_endpoint), Some(&per_type));
    let lease = || async { ids(&queue.lease_by(&request).await) };
    let to_strings = |ids: &[&str]| ids.iter().map(ToString::to_string).collect::<Vec<_>>();
    queue.verify("the first of each", lease().await, to_strings(&["a1", "a3", "b2", "c1", "untyped"]));
    queue.verify("the second of each", lease().await, to_strings(&["a2", "a4"]));
    let mut request = LeaseRequest::new(10, LONG);
    request.per_endpoint = Some(&per_endpoint);
    queue.verify("the rest", ids(&queue.lease_by(&request).await), to_strings(&["b1"]));
}

/// A start is remembered even if the lease lapses. A release and a requeue forget it.
async fn start_is_remembered_and_renews(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    let leased = queue.leases_for(harness.lease(), &event).await;
    queue.verify("started", leased.started, false);
    harness.pass(harness.lease() * 2).await;
    let leased = queue.leases_for(harness.lease(), &event).await;
    queue.verify("started, once lapsed", leased.started, false);
    queue.starts(&leased, LONG, Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    queue.leases_nothing().await;
    queue.starts(&leased, harness.lease(), Hold::Held).await;
    harness.pass(harness.lease() * 2).await;
    let again = queue.leases(&event).await;
    queue.verify("started, lapsed again", (again.started, again.attempt), (true, 3));
    queue.starts(&leased, LONG, Hold::Lost).await;
    queue.retries(&again, Duration::ZERO, "not yet", Hold::Held).await;
    let again = queue.leases(&event).await;
    queue.verify("started, retried", again.started, true);
    queue.releases(&again, Hold::Held).await;
    let again = queue.leases(&event).await;
    queue.verify("started, released", again.started, false);
    queue.starts(&again, LONG, Hold::Held).await;
    queue.buries(&again, "hopeless", Hold::Held).await;
    queue.requeues(&Filter::one(event.key.clone()), false, 1).await;
    queue.verify("started, requeued", queue.leases(&event).await.started, false);
}

/// Waiting events are counted up to a limit, and running ones are not counted.
async fn waiting_events_are_counted_up_to_a_limit(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    for id in ["a", "b", "c", "d"] {
        queue.adds(NewEvent::new(id)).await;
    }
    let leased = queue.lease(1, LONG).await.remove(0);
    for (up_to, expected) in [(0, 0), (2, 2), (3, 3), (10, 3)] {
        queue.verify("waiting", queue.answered("waiting", queue.store.waiting(up_to).await), expected);
    }
    queue.retries(&leased, LONG, "later", Hold::Held).await;
    queue.verify("waiting", queue.answered("waiting", queue.store.waiting(10).await), 4);
}

/// An arrival wakes a waiting worker. The contract does not demand it, but every queue of this crate does it.
async fn arrival_wakes(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    // An earlier arrival may wake it, too.
    let _ = tokio::time::timeout(Duration::from_millis(200), queue.store.wake()).await;
    let woken = queue.store.wake();
    queue.adds(NewEvent::new("evt_1")).await;
    if tokio::time::timeout(Duration::from_secs(10), woken).await.is_err() {
        queue.fail("wake", &"ready", &"nothing within ten seconds");
    }
}
