//! Leases of some kinds and not others.

use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::queue::{KindLimits, LeaseRequest, Leased, Order, Queue};
use tower_webhook::store::{ClaimRequest, ClaimToken, Hold, MemoryStore, SqliteStore, Store};
use tower_webhook::testing::ManualClock;

use crate::sqlite::fixture::{Fixture, LEASE, PATIENCE, is_fresh};
use crate::sqlite::queue::{NOW, at, stored_request};
use crate::support::checker::asked_seed;

const ENDPOINTS: [&str; 4] = ["/a", "/b", "/c", "/ü \"quoted\""];
const TYPES: [Option<&str>; 5] = [None, Some(""), Some("x"), Some("x.y"), Some("☃")];

/// The memory store chooses events one by one.
#[tokio::test]
async fn random_leases_get_what_the_memory_store_gives() {
    let seed = asked_seed().unwrap_or(11);
    println!("FAULTS_SEED={seed}");
    let mut random = Random(seed);
    let mut by_kind = 0;
    for _ in 0..6 {
        let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
        let (store, reference) = (at(&fixture, &clock).await, MemoryStore::builder().clock(clock.clone()).build());
        let mut both = Both { store: &store, reference: &reference, leased: Vec::new() };
        // One kind has a backlog, so that others are far behind.
        for n in 0..500 {
            let (endpoint, event_type) = match random.below(4) {
                0 => (random.of(&ENDPOINTS), random.of(&TYPES)),
                _ => ("/b", Some("x")),
            };
            let order = (random.below(8) == 0).then(|| Order::of(format!("resource {}", random.below(9))));
            both.accept(&EventKey::new(endpoint, None, &n.to_string()), event_type, order).await;
            clock.advance(Duration::from_millis(random.below(3)));
        }
        for _ in 0..60 {
            let wanted = random.wanted();
            let came = both.lease(&wanted).await;
            by_kind += usize::from(!wanted.endpoints.is_empty() && !came.is_empty());
            for place in (0..both.leased.len()).rev() {
                match random.below(4) {
                    0 => both.settle(place, Settling::Release).await,
                    1 => both.settle(place, Settling::Retry(Duration::from_millis(random.below(2_000)))).await,
                    2 => both.settle(place, Settling::Complete).await,
                    _ => {}
                }
            }
            clock.advance(Duration::from_millis(random.below(400)));
            if random.below(10) == 0 {
                clock.advance(LEASE);
                // Nobody holds those any more.
                both.leased.clear();
            }
        }
    }
    assert!(by_kind > 20, "{by_kind}");
}

/// What waits since before a reboot is due, whatever kind is asked for.
#[tokio::test]
async fn kinds_of_another_boot_are_leased() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    for n in 0..300 {
        accept(&store, &EventKey::new("/b", None, &n.to_string()), None, None).await;
    }
    for id in ["first", "second"] {
        accept(&store, &EventKey::new("/a", None, id), Some("x"), None).await;
    }
    for boot in ["!", "~"] {
        let reboot = sqlx::query("UPDATE webhook_events SET boot = ?, due_at = due_at + 1000000000").bind(boot);
        reboot.execute(&pool).await.expect("a reboot");
        let only_a = ["/a".into()];
        let mut request = LeaseRequest::new(10, LEASE);
        request.endpoints = &only_a;
        let leased = store.lease(&request).await.expect("an answer");
        assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), ["first", "second"]);
        for leased in leased {
            assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
        }
    }
}

/// While a handler holds the write lock, too.
#[tokio::test(flavor = "multi_thread")]
async fn peeking_waits_for_no_lock() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::ZERO).build(&pool).await.expect("a store");
    let key = EventKey::new("/a", None, "evt_1");
    accept(&store, &key, None, None).await;
    let transaction = crate::sqlite::fixture::write_lock(&pool).await;
    let again = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
    let known = tokio::time::timeout(PATIENCE, store.peek(&again)).await.expect("in time").expect("an answer");
    assert!(matches!(known, Some(tower_webhook::store::Claim::Accepted { .. })), "{known:?}");
    let other = EventKey::new("/a", None, "evt_2");
    let unknown = store.peek(&ClaimRequest::new(&other, ClaimToken::random(), LEASE)).await.expect("an answer");
    assert_eq!(unknown, None);
    transaction.rollback().await.expect("an end");
}

async fn accept(inbox: &impl Queue, key: &EventKey, event_type: Option<&str>, order: Option<Order>) {
    let stored_request = order.into_iter().fold(stored_request("body"), tower_webhook::queue::StoredRequest::ordered);
    let claim = ClaimRequest::new(key, ClaimToken::random(), LEASE).event_type(event_type);
    assert!(is_fresh(inbox.enqueue(&claim, &stored_request).await.expect("an answer")));
}

/// Two inboxes that are asked the same.
struct Both<'a> {
    store: &'a SqliteStore,
    reference: &'a MemoryStore,
    leased: Vec<[Leased; 2]>,
}

#[derive(Clone, Copy)]
enum Settling {
    Release,
    Retry(Duration),
    Complete,
}

impl Both<'_> {
    async fn accept(&self, key: &EventKey, event_type: Option<&str>, order: Option<Order>) {
        accept(self.store, key, event_type, order.clone()).await;
        accept(self.reference, key, event_type, order).await;
    }

    async fn lease(&mut self, wanted: &Wanted) -> Vec<EventKey> {
        let came = self.store.lease(&wanted.request()).await.expect("an answer");
        let expected = self.reference.lease(&wanted.request()).await.expect("an answer");
        let attempts =
            |leased: &[Leased]| leased.iter().map(|leased| (leased.key.clone(), leased.attempt)).collect::<Vec<_>>();
        assert_eq!(attempts(&came), attempts(&expected), "{wanted:?}");
        let keys = came.iter().map(|leased| leased.key.clone()).collect();
        self.leased.extend(came.into_iter().zip(expected).map(<[_; 2]>::from));
        keys
    }

    async fn settle(&mut self, place: usize, settling: Settling) {
        let [came, expected] = self.leased.swap_remove(place);
        let came = settle(self.store, &came, settling).await;
        assert_eq!(came, settle(self.reference, &expected, settling).await);
    }
}

async fn settle(inbox: &impl Queue, leased: &Leased, settling: Settling) -> Hold {
    let hold = match settling {
        Settling::Release => inbox.release(&leased.key, leased.token).await,
        Settling::Retry(after) => inbox.retry(&leased.claim(LEASE), after, "flaky").await,
        Settling::Complete => inbox.complete(&leased.claim(LEASE), &crate::sqlite::fixture::done()).await,
    };
    hold.expect("an answer")
}

#[derive(Debug)]
struct Wanted {
    limit: usize,
    endpoints: Vec<Box<str>>,
    per_endpoint: Option<KindLimits>,
    per_type: Option<KindLimits>,
}

impl Wanted {
    fn request(&self) -> LeaseRequest<'_> {
        let mut request = LeaseRequest::new(self.limit, LEASE);
        request.endpoints = &self.endpoints;
        (request.per_endpoint, request.per_type) = (self.per_endpoint.as_ref(), self.per_type.as_ref());
        request
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }

    fn limits<'a>(&mut self, kinds: impl IntoIterator<Item = &'a str>) -> Option<KindLimits> {
        (self.below(2) == 0).then(|| {
            let each = KindLimits::new(self.below(4) as usize);
            kinds.into_iter().fold(each, |limits, kind| match self.below(2) {
                0 => limits.with(kind, self.below(3) as usize),
                _ => limits,
            })
        })
    }

    fn wanted(&mut self) -> Wanted {
        let some = ENDPOINTS.iter().filter(|_| self.below(2) == 0).map(|endpoint| Box::from(*endpoint)).collect();
        Wanted {
            limit: self.below(12) as usize,
            endpoints: if self.below(2) == 0 { some } else { Vec::new() },
            per_endpoint: self.limits(ENDPOINTS),
            per_type: self.limits(TYPES.into_iter().flatten()),
        }
    }
}
