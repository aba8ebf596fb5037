//! What the memory store keeps of an inbox's events, and what goes when there is no room.

use std::time::Duration;

use futures_util::FutureExt;
use tower_webhook::queue::{EventState, Filter, LeaseRequest, Order, Page, Queue, QueueCounts};
use tower_webhook::store::{Claim, ClaimRequest, Completion, Hold, Store, StoreErrorKind};

use super::fixture::{Fixture, HOUR, LEASE, WEEK, key};

#[tokio::test]
async fn inbox_of_any_capacity_takes_new_events_however_many_were_completed() {
    for capacity in [1, 100] {
        let fixture = Fixture::new(|builder| builder.capacity(capacity).min_retention(Duration::ZERO));
        for n in 0..1_000 {
            fixture.run(&format!("evt_{n}")).await;
        }
        let stats = fixture.stats();
        assert_eq!((stats.queued, stats.completed), (capacity, capacity));
        assert_eq!((stats.retired, stats.evicted), (1_000 - capacity as u64, 1_000 - 2 * capacity as u64));
        for n in 0..1_000 {
            let known = fixture.is_completed(&format!("evt_{n}")).await;
            assert_eq!(known, n >= 1_000 - 2 * capacity, "evt_{n} of {capacity}: the oldest go first");
        }
    }
}

#[tokio::test]
async fn young_completed_events_stay_and_new_ones_are_refused_until_they_are_old() {
    let fixture = Fixture::new(|builder| builder.capacity(10).min_retention(HOUR));
    for n in 0..20 {
        fixture.run(&format!("evt_{n}")).await;
    }
    assert_eq!(fixture.accept("new").await, Err(StoreErrorKind::Full));
    for n in 0..20 {
        assert!(fixture.is_completed(&format!("evt_{n}")).await, "evt_{n}");
    }
    assert_eq!((fixture.stats().evicted, fixture.stats().retired), (0, 10));
    fixture.clock.advance(HOUR);
    fixture.keep("new").await;
    assert!(!fixture.is_completed("evt_0").await);
    assert!(fixture.is_completed("evt_1").await);
    assert_eq!(fixture.stats().evicted, 1);
}

#[tokio::test]
async fn completed_events_whose_retention_is_over_make_room() {
    let fixture = Fixture::new(|builder| builder.capacity(10).min_retention(HOUR));
    for n in 0..20 {
        fixture.run(&format!("evt_{n}")).await;
    }
    fixture.clock.advance(WEEK);
    assert_eq!(fixture.counts().await, QueueCounts::default());
    assert!(fixture.store.list(&Filter::all(), &Page::first(100)).await.expect("a list").is_empty());
    for n in 0..10 {
        fixture.keep(&format!("evt_{n}")).await;
    }
    assert_eq!(fixture.stats().evicted, 0, "nothing was forgotten early");
}

#[tokio::test]
async fn events_that_are_not_completed_are_never_evicted() {
    let fixture = Fixture::new(|builder| builder.capacity(9).min_retention(Duration::ZERO));
    for n in 0..3 {
        fixture.keep(&format!("dead_{n}")).await;
        let leased = fixture.lease().await;
        fixture.bury(&leased).await;
    }
    let mut running = Vec::new();
    for n in 0..3 {
        fixture.keep(&format!("running_{n}")).await;
        running.push(fixture.lease().await);
    }
    for n in 0..3 {
        fixture.keep(&format!("waiting_{n}")).await;
    }
    fixture.clock.advance(LEASE / 2);
    assert_eq!(fixture.accept("new").await, Err(StoreErrorKind::Full));
    let counts = fixture.counts().await;
    assert_eq!((counts.dead, counts.running, counts.waiting, counts.completed), (3, 3, 3, 0));
    assert_eq!(fixture.accept("waiting_0").await, Ok(Claim::Accepted { same_body: true }), "duplicates are told");

    fixture.complete_leased(&running[0]).await;
    fixture.keep("new").await;
    assert_eq!(fixture.accept("newer").await, Err(StoreErrorKind::Full));
    assert!(fixture.is_completed("running_0").await);
    fixture.store.forget(&Filter::all().state(EventState::Dead)).await.expect("memory does not fail");
    fixture.keep("newer").await;
}

#[tokio::test]
async fn live_inline_claims_and_young_records_are_not_evicted_for_events_of_the_inbox() {
    let fixture = Fixture::new(|builder| builder.capacity(2).min_retention(HOUR));
    let tokens = [fixture.take("inline_0").await, fixture.take("inline_1").await];
    for n in 0..2 {
        fixture.run(&format!("evt_{n}")).await;
    }
    assert_eq!(fixture.accept("new").await, Err(StoreErrorKind::Full));
    for (id, token) in ["inline_0", "inline_1"].into_iter().zip(tokens) {
        let key = key(id);
        let claim = ClaimRequest::new(&key, token, LEASE);
        let done = Completion::succeeded("OK", WEEK);
        assert_eq!(fixture.store.complete(&claim, &done).await.expect("memory does not fail"), Hold::Held);
    }
    assert_eq!(fixture.accept("new").await, Err(StoreErrorKind::Full));
    for id in ["inline_0", "inline_1", "evt_0", "evt_1"] {
        assert!(fixture.is_completed(id).await, "{id}");
    }
}

#[tokio::test]
async fn records_of_inline_deliveries_take_no_room_from_the_inbox() {
    let fixture = Fixture::new(|builder| builder.capacity(2).min_retention(HOUR));
    for id in ["inline_0", "inline_1"] {
        let (key, token) = (key(id), fixture.take(id).await);
        let done = Completion::succeeded("OK", WEEK);
        let hold = fixture.store.complete(&ClaimRequest::new(&key, token, LEASE), &done).await;
        assert_eq!(hold.expect("memory does not fail"), Hold::Held);
    }
    fixture.clock.advance(HOUR);
    fixture.keep("evt_0").await;
    fixture.keep("evt_1").await;
    assert!(!fixture.is_completed("evt_2").await, "a look claims nothing");
    assert_eq!(fixture.stats().evicted, 0);
    assert!(fixture.is_completed("inline_0").await && fixture.is_completed("inline_1").await);
}

#[tokio::test]
async fn sequences_are_kept_for_as_many_resources_as_there_is_capacity() {
    let fixture = Fixture::new(|builder| builder.capacity(50).min_retention(Duration::ZERO));
    let order = |resource: usize, sequence| Some(Order::of(format!("r{resource}")).sequence(sequence));
    for n in 0..500 {
        fixture.accept_ordered(&format!("evt_{n}"), order(n, 2)).await.expect("room");
        fixture.complete_leased(&fixture.lease().await).await;
    }
    assert_eq!((fixture.stats().sequences, fixture.stats().sequences_forgotten), (50, 450));
    for (resource, superseded) in [(499, true), (450, true), (449, false)] {
        fixture.accept_ordered(&format!("late_{resource}"), order(resource, 1)).await.expect("room");
        let leased = fixture.lease().await;
        assert_eq!(leased.superseded, superseded, "resource {resource}");
        fixture.complete_leased(&leased).await;
    }
}

#[tokio::test]
async fn dropped_lease_strands_nothing() {
    let fixture = Fixture::new(|builder| builder);
    fixture.keep("evt_0").await;
    let request = LeaseRequest::new(1, LEASE);
    drop(fixture.store.lease(&request));
    assert_eq!(fixture.counts().await.waiting, 1);
    // Answered when it is first polled: a caller cannot give up between the lease and its reply.
    let leased = fixture.store.lease(&request).now_or_never().expect("an answer at once");
    assert_eq!(leased.expect("memory does not fail").len(), 1);
}

/// The reply to the first release may have been lost.
#[tokio::test]
async fn repeated_release_of_a_leased_event_is_held_and_changes_nothing() {
    let fixture = Fixture::new(|builder| builder);
    fixture.keep("evt_0").await;
    let leased = fixture.lease().await;
    for _ in 0..2 {
        assert_eq!(fixture.store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
        assert_eq!(fixture.counts().await.waiting, 1);
    }
    let next = fixture.lease().await;
    assert_eq!(next.attempt, 1, "no attempt was counted, and none taken off twice");
    assert_eq!(fixture.store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Lost);
    fixture.complete_leased(&next).await;
}

#[tokio::test]
async fn counts_follow_every_change_of_state() {
    let fixture = Fixture::new(|builder| builder);
    let counts = async || {
        let counts = fixture.counts().await;
        let waiting = fixture.store.waiting(u64::MAX).await.expect("memory does not fail");
        assert_eq!(waiting, counts.waiting);
        (counts.waiting, counts.running, counts.completed, counts.dead)
    };
    for n in 0..4 {
        fixture.keep(&format!("evt_{n}")).await;
    }
    let [a, b, c, d] = [fixture.lease().await, fixture.lease().await, fixture.lease().await, fixture.lease().await];
    assert_eq!(counts().await, (0, 4, 0, 0));
    fixture.complete_leased(&a).await;
    fixture.bury(&b).await;
    assert_eq!(fixture.store.retry(&c.claim(LEASE), HOUR, "later").await.expect("an answer"), Hold::Held);
    assert_eq!(fixture.store.release(&d.key, d.token).await.expect("an answer"), Hold::Held);
    assert_eq!(counts().await, (2, 0, 1, 1));
    fixture.store.requeue(&Filter::all(), true).await.expect("an answer");
    assert_eq!(counts().await, (4, 0, 0, 0));
    assert_eq!(fixture.lease().await.key, d.key, "the one that was put back is the oldest");
    fixture.clock.advance(LEASE * 2);
    assert_eq!(fixture.lease().await.key, a.key);
    assert_eq!(counts().await, (2, 2, 0, 0), "a lapsed lease is running until somebody takes it");
    fixture.store.discard(&Filter::one(c.key.clone()), WEEK).await.expect("an answer");
    assert_eq!(counts().await, (1, 2, 1, 0));
    fixture.store.forget(&Filter::all()).await.expect("an answer");
    assert_eq!(counts().await, (1, 2, 0, 0));
}
