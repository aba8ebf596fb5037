//! The conformance suite, and what only the memory store has: capacity, eviction, attempts, failures.

use std::time::{Duration, SystemTime};

use tower_webhook::clock::Clock;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, MemoryStore, Store, StoreErrorKind};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

use super::fixture::{Fixture, HOUR, LEASE, SECOND, WEEK, key};

/// Makes stores on a clock that the suite turns.
pub(crate) struct Memory(pub(crate) ManualClock);

impl Harness for Memory {
    type Store = MemoryStore;

    async fn store(&self) -> MemoryStore {
        MemoryStore::builder().clock(self.0.clone()).build()
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

fn attempt(claim: &Result<(Claim, ClaimToken), StoreErrorKind>) -> Option<u32> {
    match claim {
        Ok((Claim::Fresh { attempt }, _)) => *attempt,
        other => panic!("not fresh: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn memory_store_conforms() {
    conformance::store().run(&Memory(ManualClock::at_unix(1_700_000_000))).await;
}

#[tokio::test]
async fn answers_ten_thousand_random_sequences_like_the_reference() {
    let seed = 20_260_301;
    println!("seed {seed}");
    conformance::model(&Memory(ManualClock::at_unix(1_700_000_000)), seed, 10_000).await;
}

#[tokio::test]
async fn full_store_forgets_the_oldest_completed_first() {
    let fixture = Fixture::with_capacity(3);
    for id in ["a", "b", "c"] {
        fixture.complete(id, WEEK).await;
        fixture.clock.advance(SECOND);
    }
    fixture.clock.advance(HOUR);
    fixture.take("d").await;

    let stats = fixture.store.stats();
    assert_eq!((stats.running, stats.completed, stats.capacity, stats.evicted), (1, 2, 3, 1));
    assert!(fixture.remembers("b").await && fixture.remembers("c").await);
    fixture.take("a").await;
    assert_eq!(fixture.store.stats().evicted, 2);
    assert!(fixture.remembers("c").await);
}

#[tokio::test]
async fn full_store_refuses_rather_than_forget_a_young_record() {
    let fixture = Fixture::with_capacity(2);
    fixture.complete("a", WEEK).await;
    fixture.complete("b", WEEK).await;

    fixture.clock.advance(HOUR - SECOND);
    assert_eq!(fixture.claim("c").await.err(), Some(StoreErrorKind::Full));
    assert!(fixture.remembers("a").await && fixture.remembers("b").await);
    assert_eq!(fixture.store.stats().evicted, 0);

    fixture.clock.advance(SECOND);
    fixture.take("c").await;
    assert_eq!(fixture.store.stats().evicted, 1);
}

#[tokio::test]
async fn full_store_never_drops_a_live_claim() {
    let fixture = Fixture::new(|builder| builder.capacity(2).min_retention(Duration::ZERO));
    let (a, b) = (fixture.take("a").await, fixture.take("b").await);
    assert_eq!(fixture.claim("c").await.err(), Some(StoreErrorKind::Full));

    // Known events are still answered.
    assert!(matches!(fixture.claim("a").await, Ok((Claim::InFlight { .. }, _))));
    assert_eq!(
        fixture.store.renew(&ClaimRequest::new(&key("a"), a, LEASE)).await.expect("memory does not fail"),
        Hold::Held
    );

    fixture.release("b", b).await;
    fixture.take("c").await;
}

#[tokio::test]
async fn full_store_drops_claims_that_lapsed_long_ago() {
    let fixture = Fixture::with_capacity(2);
    let zombie = fixture.take("a").await;
    fixture.take("b").await;

    fixture.clock.advance(HOUR);
    assert_eq!(fixture.claim("c").await.err(), Some(StoreErrorKind::Full), "lapsed for less than an hour");
    fixture.clock.advance(LEASE);
    fixture.take("c").await;

    let done = Completion::succeeded("200", WEEK);
    let late = fixture.store.complete(&ClaimRequest::new(&key("a"), zombie, LEASE), &done).await;
    assert_eq!(late.expect("memory does not fail"), Hold::Lost);
    assert_eq!(attempt(&fixture.claim("a").await), Some(2), "its attempts are still known");
    assert_eq!(fixture.store.stats().evicted, 0);
}

#[tokio::test]
async fn expired_records_make_room_wherever_they_are() {
    let fixture = Fixture::with_capacity(3);
    fixture.complete("long", WEEK).await;
    fixture.complete("short", 10 * SECOND).await;
    fixture.complete("longer", 2 * WEEK).await;

    fixture.clock.advance(10 * SECOND);
    assert_eq!(fixture.store.stats().completed, 2);
    fixture.take("new").await;
    assert!(fixture.remembers("long").await && fixture.remembers("longer").await);
    assert_eq!(fixture.store.stats().evicted, 0);
}

#[tokio::test]
async fn expired_records_are_preferred_to_old_ones() {
    let fixture = Fixture::with_capacity(2);
    fixture.complete("long", WEEK).await;
    fixture.complete("short", 2 * HOUR).await;

    fixture.clock.advance(2 * HOUR);
    fixture.take("new").await;
    assert!(fixture.remembers("long").await);
    assert_eq!(fixture.store.stats().evicted, 0);
}

#[tokio::test]
async fn expired_records_are_dropped_by_later_claims() {
    let fixture = Fixture::with_capacity(100);
    for n in 0..100 {
        fixture.complete(&n.to_string(), HOUR).await;
    }
    assert_eq!(fixture.store.len(), 100);
    fixture.clock.advance(HOUR);
    assert!(fixture.store.is_empty());

    for n in 100..200 {
        fixture.complete(&n.to_string(), HOUR).await;
    }
    assert_eq!((fixture.store.len(), fixture.store.stats().evicted), (100, 0));
}

#[tokio::test]
async fn churn_behind_a_long_lived_record_fits_the_capacity() {
    let fixture = Fixture::with_capacity(50);
    fixture.complete("first", WEEK).await;
    for n in 0..5_000 {
        fixture.complete(&n.to_string(), SECOND).await;
        fixture.clock.advance(SECOND / 10);
    }
    assert!(fixture.remembers("first").await);
    assert_eq!(fixture.store.stats().evicted, 0);
}

#[tokio::test]
async fn large_stores_hold_what_was_asked_for() {
    let fixture = Fixture::with_capacity(20_000);
    for n in 0..20_000 {
        fixture.complete(&n.to_string(), WEEK).await;
    }
    assert_eq!(fixture.store.stats().completed, 20_000);

    let mut refused = 0;
    for n in 20_000..24_000 {
        refused += u32::from(fixture.claim(&n.to_string()).await.is_err());
    }
    assert!(refused > 0, "it is bounded");
    assert_eq!(fixture.store.stats().evicted, 0);
}

#[tokio::test]
async fn wall_clock_jumps_change_nothing() {
    let fixture = Fixture::with_capacity(10);
    fixture.complete("done", HOUR).await;
    fixture.take("running").await;

    for wall in [SystemTime::UNIX_EPOCH, fixture.clock.now() + 10 * WEEK] {
        fixture.clock.set_wall(wall);
        assert!(fixture.remembers("done").await);
        assert!(matches!(fixture.claim("running").await, Ok((Claim::InFlight { .. }, _))));
    }
}

#[tokio::test]
async fn attempts_are_counted_over_releases_and_takeovers() {
    let fixture = Fixture::with_capacity(10);
    let first = fixture.claim("a").await;
    assert_eq!(attempt(&first), Some(1));
    let (_, token) = first.expect("claimed");
    assert_eq!(fixture.claim_as(token, "a").await, Ok(Claim::Fresh { attempt: Some(1) }), "the same claim again");

    fixture.release("a", token).await;
    assert_eq!(attempt(&fixture.claim("a").await), Some(2));
    fixture.clock.advance(LEASE);
    assert_eq!(attempt(&fixture.claim("a").await), Some(3));
    assert_eq!(attempt(&fixture.claim("b").await), Some(1));
}

#[tokio::test]
async fn attempts_of_many_released_events_are_forgotten() {
    let fixture = Fixture::with_capacity(10);
    for n in 0..10_000 {
        let id = n.to_string();
        let token = fixture.take(&id).await;
        fixture.release(&id, token).await;
    }
    assert!(fixture.store.is_empty());
    assert_eq!(attempt(&fixture.claim("0").await), Some(1));
    assert_eq!(attempt(&fixture.claim("9999").await), Some(2));
}

#[tokio::test]
async fn reason_of_a_failed_event_is_kept_with_it() {
    let fixture = Fixture::with_capacity(10);
    let token = fixture.take("a").await;
    let given_up = Completion::failed("no such account", HOUR);
    let hold = fixture.store.complete(&ClaimRequest::new(&key("a"), token, LEASE), &given_up).await;
    assert_eq!(hold.expect("memory does not fail"), Hold::Held);
    fixture.complete("b", HOUR).await;

    assert_eq!(fixture.store.failure(&key("a")).as_deref(), Some("no such account"));
    assert_eq!(fixture.store.failure(&key("b")), None);
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.store.failure(&key("a")), None);
}

#[tokio::test]
async fn token_of_an_expired_record_holds_nothing() {
    let fixture = Fixture::with_capacity(10);
    let (id, token) = (key("a"), fixture.take("a").await);
    let (claim, done) = (ClaimRequest::new(&id, token, LEASE), Completion::succeeded("200", HOUR));
    assert_eq!(fixture.store.complete(&claim, &done).await.ok(), Some(Hold::Held));
    fixture.clock.advance(HOUR);
    assert_eq!(fixture.store.renew(&claim).await.ok(), Some(Hold::Lost));
    assert_eq!(fixture.store.complete(&claim, &done).await.ok(), Some(Hold::Lost));
    assert_eq!(fixture.store.release(&id, token).await.ok(), Some(Hold::Lost));
    fixture.take("a").await;
}

#[tokio::test]
async fn endless_leases_and_retentions_do_not_overflow() {
    let fixture = Fixture::new(|builder| builder.min_retention(Duration::MAX).capacity(2));
    let (id, token) = (key("a"), ClaimToken::random());
    let claim = ClaimRequest::new(&id, token, Duration::MAX);
    assert_eq!(fixture.store.claim(&claim).await.ok(), Some(Claim::Fresh { attempt: Some(1) }));
    assert_eq!(fixture.store.renew(&claim).await.ok(), Some(Hold::Held));
    fixture.clock.advance(100 * WEEK);
    assert!(matches!(fixture.claim("a").await, Ok((Claim::InFlight { .. }, _))));

    let done = Completion::succeeded("200", Duration::MAX);
    assert_eq!(fixture.store.complete(&claim, &done).await.ok(), Some(Hold::Held));
    fixture.clock.advance(100 * WEEK);
    assert!(fixture.remembers("a").await);
    fixture.take("b").await;
    assert_eq!(fixture.claim("c").await.err(), Some(StoreErrorKind::Full));
}

#[test]
fn clones_share_one_memory_and_debug_shows_none_of_it() {
    let store = MemoryStore::default();
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (id, other) = (key("evt_secret"), store.clone());
    let claim = runtime.block_on(store.claim(&ClaimRequest::new(&id, ClaimToken::random(), LEASE)));
    assert!(claim.is_ok());
    assert_eq!(other.len(), 1);
    assert_eq!(format!("{other:?}"), "MemoryStore { capacity: 1000000, .. }");
}
