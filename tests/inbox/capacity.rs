//! What the memory store keeps of an inbox's events, and what goes when there is no room.

use std::time::{Duration, SystemTime};

use futures_util::FutureExt;
use tower_webhook::EventKey;
use tower_webhook::queue::{EventState, Filter, LeaseRequest, Leased, Order, Page, Queue, QueueCounts, StoredRequest};
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Hold, MemoryStats, MemoryStore, MemoryStoreBuilder, Store,
    StoreErrorKind,
};
use tower_webhook::testing::ManualClock;

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);
const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

/// A store on a clock that the test turns.
struct Fixture {
    clock: ManualClock,
    store: MemoryStore,
}

impl Fixture {
    fn new(configure: impl FnOnce(MemoryStoreBuilder) -> MemoryStoreBuilder) -> Self {
        let clock = ManualClock::at_unix(1_700_000_000);
        let store = configure(MemoryStore::builder()).clock(clock.clone()).build();
        Self { clock, store }
    }

    async fn accept_ordered(&self, id: &str, order: Option<Order>) -> Result<Claim, StoreErrorKind> {
        let mut parcel = StoredRequest::new("head", "body", SystemTime::UNIX_EPOCH);
        parcel.order = order;
        let key = key(id);
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        self.store.enqueue(&claim, &parcel).await.map_err(|error| error.kind())
    }

    async fn accept(&self, id: &str) -> Result<Claim, StoreErrorKind> {
        self.accept_ordered(id, None).await
    }

    /// Accepts what there must be room for.
    async fn keep(&self, id: &str) {
        assert_eq!(self.accept(id).await, Ok(Claim::Fresh { attempt: None }), "{id}");
    }

    async fn lease(&self) -> Leased {
        let mut leased = self.store.lease(&LeaseRequest::new(1, LEASE)).await.expect("memory does not fail");
        leased.pop().expect("an event")
    }

    async fn complete(&self, leased: &Leased) {
        let done = Completion::succeeded("OK", WEEK);
        assert_eq!(self.store.complete(&leased.claim(LEASE), &done).await.expect("memory does not fail"), Hold::Held);
    }

    async fn bury(&self, leased: &Leased) {
        let hold = self.store.bury(&leased.claim(LEASE), "hopeless").await;
        assert_eq!(hold.expect("memory does not fail"), Hold::Held);
    }

    /// Accepts an event and has it completed.
    async fn run(&self, id: &str) {
        self.keep(id).await;
        self.complete(&self.lease().await).await;
    }

    async fn is_completed(&self, id: &str) -> bool {
        let key = key(id);
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        matches!(self.store.peek(&claim).await, Ok(Some(Claim::Completed { .. })))
    }

    async fn inline(&self, id: &str) -> ClaimToken {
        let (key, token) = (key(id), ClaimToken::random());
        let claimed = self.store.claim(&ClaimRequest::new(&key, token, LEASE)).await;
        assert!(matches!(claimed, Ok(Claim::Fresh { .. })), "{id}: {claimed:?}");
        token
    }

    async fn counts(&self) -> QueueCounts {
        self.store.counts().await.expect("memory does not fail")
    }

    fn stats(&self) -> MemoryStats {
        self.store.stats()
    }
}

fn key(id: &str) -> EventKey {
    EventKey::new("/webhooks", None, id)
}

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

    fixture.complete(&running[0]).await;
    fixture.keep("new").await;
    assert_eq!(fixture.accept("newer").await, Err(StoreErrorKind::Full));
    assert!(fixture.is_completed("running_0").await);
    fixture.store.forget(&Filter::all().state(EventState::Dead)).await.expect("memory does not fail");
    fixture.keep("newer").await;
}

#[tokio::test]
async fn live_inline_claims_and_young_records_are_not_evicted_for_events_of_the_inbox() {
    let fixture = Fixture::new(|builder| builder.capacity(2).min_retention(HOUR));
    let tokens = [fixture.inline("inline_0").await, fixture.inline("inline_1").await];
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
        let (key, token) = (key(id), fixture.inline(id).await);
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
        fixture.complete(&fixture.lease().await).await;
    }
    assert_eq!((fixture.stats().sequences, fixture.stats().sequences_forgotten), (50, 450));
    for (resource, superseded) in [(499, true), (450, true), (449, false)] {
        fixture.accept_ordered(&format!("late_{resource}"), order(resource, 1)).await.expect("room");
        let leased = fixture.lease().await;
        assert_eq!(leased.superseded, superseded, "resource {resource}");
        fixture.complete(&leased).await;
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
    fixture.complete(&a).await;
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
