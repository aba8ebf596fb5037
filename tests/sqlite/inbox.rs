//! The inbox: the conformance suite, and what is its own of disks, locks, clocks, and callers that leave.

use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use tower_webhook::queue::{EventState, Filter, LeaseRequest, Page, Queue};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Hold, SqliteStore, Store, StoreErrorKind};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

use crate::sqlite::fixture::{DAY, Fixture, LEASE, PATIENCE, claim, eventually, is_fresh, key, write_lock};
use crate::sqlite::queue::{NOW, accept, at, count, lease, lease_one, stored_request};

/// A file for every store.
struct Files(ManualClock, std::sync::Mutex<Vec<Fixture>>);

impl Harness for Files {
    type Store = SqliteStore;

    async fn store(&self) -> SqliteStore {
        let fixture = Fixture::new();
        let store = SqliteStore::builder().clock(self.0.clone()).open(fixture.path()).await.expect("a store");
        self.1.lock().expect("no panic").push(fixture);
        store
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inbox_conforms() {
    conformance::queue().run(&Files(ManualClock::at_unix(NOW), Default::default())).await;
}

#[tokio::test]
async fn accepted_event_survives_reopening_the_file() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let event = accept(&store, "evt_1").await;
    // Not closed, not flushed by anybody else: the answer alone promises it.
    let other = fixture.store().await;
    let kept = other.get(&event).await.expect("an answer").expect("the event");
    assert_eq!((kept.state, kept.request), (EventState::Waiting, Some(stored_request("evt_1"))));
    assert_eq!(other.claim(&claim(&event)).await.expect("an answer"), Claim::Accepted { same_body: true });
    let leased = lease_one(&other).await;
    assert_eq!((leased.key, leased.request), (event, stored_request("evt_1")));
    assert!(lease(&store, 1).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_not_accepted_while_it_cannot_be_written() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::from_millis(100)).build(&pool).await.expect("a store");
    let transaction = write_lock(&pool).await;
    let (event, stored_request) = (key("evt_1"), stored_request("evt_1"));
    let mine = claim(&event);
    assert_eq!(store.enqueue(&mine, &stored_request).await.expect_err("locked").kind(), StoreErrorKind::Locked);
    transaction.rollback().await.expect("an end");
    assert_eq!((count(&pool, "webhook_events").await, count(&pool, "webhook_events_parcels").await), (0, 0));
    assert!(is_fresh(store.enqueue(&mine, &stored_request).await.expect("an answer")));
    assert!(is_fresh(store.enqueue(&mine, &stored_request).await.expect("an answer")), "a lost reply, asked again");
    assert_eq!((count(&pool, "webhook_events").await, count(&pool, "webhook_events_parcels").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_of_a_handler_holds_leases_up_for_a_bounded_time() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::from_millis(200)).build(&pool).await.expect("a store");
    let transaction = write_lock(&pool).await;
    assert!(lease(&store, 1).await.is_empty(), "an idle worker does not notice");
    transaction.rollback().await.expect("an end");
    let event = accept(&store, "evt_1").await;

    let transaction = write_lock(&pool).await;
    let started = Instant::now();
    let refused = store.lease(&LeaseRequest::new(1, LEASE)).await.expect_err("locked");
    assert_eq!(refused.kind(), StoreErrorKind::Locked);
    assert!(started.elapsed() < PATIENCE / 4);
    let kept = store.get(&event).await.expect("an answer while the lock is held").expect("the event");
    assert_eq!((kept.state, kept.attempts), (EventState::Waiting, 0));
    assert_eq!(store.counts().await.expect("an answer").waiting, 1);
    assert_eq!(store.requeue(&Filter::all(), true).await.expect_err("locked").kind(), StoreErrorKind::Locked);
    transaction.rollback().await.expect("an end");
    assert_eq!(lease_one(&store).await.attempt, 1);
}

/// Or it would run into the worker's deadline, and every one after it would as well.
#[tokio::test(flavor = "multi_thread")]
async fn lease_of_large_events_takes_a_few_at_a_time() {
    const MIB: usize = 1 << 20;
    let fixture = Fixture::new();
    let store = fixture.store().await;
    for (id, size) in [("a", MIB), ("b", 2 * MIB), ("c", 2 * MIB), ("huge", 6 * MIB), ("d", 10), ("e", 10)] {
        let stored_request = stored_request(&"x".repeat(size));
        assert!(is_fresh(store.enqueue(&claim(&key(id)), &stored_request).await.expect("an answer")), "{id}");
    }
    for expected in [&["a", "b"][..], &["c"], &["huge"], &["d", "e"], &[]] {
        let leased = lease(&store, 64).await;
        assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_look_of_an_operator_keeps_no_worker_waiting() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let event = accept(&store, "evt_1").await;
    let many = "WITH RECURSIVE n (n) AS (SELECT 2 UNION ALL SELECT n + 1 FROM n WHERE n < 100000) \
                INSERT INTO webhook_events (key, state, token, boot, received_at, attempts, fingerprint, expires_at, version, arrival) \
                SELECT 'many_' || n, 'completed', token, boot, received_at, 1, 0, expires_at, 1, n FROM webhook_events, n \
                WHERE key = ?";
    sqlx::query(many).bind(event.as_str()).execute(&pool).await.expect("a long history");
    let mut nothing = Filter::all();
    nothing.event_type = Some("nothing".into());
    let list = async || {
        assert!(store.list(&nothing, &Page::first(10)).await.expect("an answer").is_empty());
        Instant::now()
    };
    let work = async || {
        assert_eq!(store.waiting(10).await.expect("an answer"), 1);
        let leased = lease_one(&store).await;
        assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
        Instant::now()
    };
    eventually("what was asked second is answered first", async || {
        let (listed, worked) = tokio::join!(list(), work());
        worked < listed
    })
    .await;
}

/// The worker's deadline was shorter than the wait for the lock, or its task was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_whose_worker_left_before_the_answer_is_put_back() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    accept(&store, "evt_1").await;
    for n in 0..100 {
        let leaving = tokio::spawn({
            let store = store.clone();
            async move { store.lease(&LeaseRequest::new(1, DAY)).await }
        });
        std::thread::sleep(Duration::from_micros(n * 20));
        leaving.abort();
        // Nothing, if the one before has left too late and its event is still on its way back.
        if let Ok(answer) = leaving.await
            && let Some(leased) = answer.expect("an answer").pop()
        {
            assert_eq!(leased.attempt, 1, "as if nobody had leased it before");
            assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
        }
    }
    // Whoever comes next waits for those before, and gets it sooner or later.
    eventually("it is put back", async || match lease(&store, 1).await.pop() {
        Some(leased) => leased.attempt == 1,
        None => false,
    })
    .await;
}

#[tokio::test]
async fn reboot_ends_leases_and_makes_everything_due() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    for id in ["running", "retried", "waiting"] {
        accept(&store, id).await;
    }
    let leased = lease(&store, 2).await;
    let later = store.retry(&leased[1].claim(LEASE), DAY, "not now").await.expect("an answer");
    assert_eq!((later, lease(&store, 3).await.len()), (Hold::Held, 1));
    // The clock of the last boot had come further than this one's.
    let reboot = "UPDATE webhook_events SET boot = 'another', due_at = due_at + 1000000000, lease_until = lease_until + 1000000000";
    sqlx::query(reboot).execute(&pool).await.expect("a reboot");
    let after = fixture.store().await;
    assert!(after.counts().await.expect("an answer").oldest_waiting.is_some());
    let mut ids: Vec<_> =
        lease(&after, 10).await.iter().map(|event| (event.key.id().to_owned(), event.attempt)).collect();
    ids.sort();
    assert_eq!(ids, [("retried".to_owned(), 2), ("running".to_owned(), 2), ("waiting".to_owned(), 2)]);
    assert!(lease(&after, 10).await.is_empty());
}

#[tokio::test]
async fn row_45_wall_clock_jumps_neither_hold_events_up_nor_run_them_early() {
    for jump in [DAY, 365 * DAY] {
        for forward in [true, false] {
            let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
            let store = at(&fixture, &clock).await;
            accept(&store, "new").await;
            accept(&store, "retried").await;
            let leased = lease(&store, 2).await;
            assert_eq!(store.retry(&leased[1].claim(LEASE), LEASE, "flaky").await.expect("an answer"), Hold::Held);
            accept(&store, "newer").await;
            let wall = std::time::UNIX_EPOCH + Duration::from_secs(NOW);
            clock.set_wall(if forward { wall + jump } else { wall - jump });
            let ids = async || {
                let leased = lease(&store, 10).await;
                leased.into_iter().map(|leased| leased.key.id().to_owned()).collect::<Vec<_>>()
            };
            assert_eq!(ids().await, ["newer"]);
            clock.advance(LEASE);
            assert_eq!(ids().await.len(), 3, "two leases have lapsed, and one retry is due");
        }
    }
}

/// It leaves after its event was leased and before it is told, and a handler's transaction holds the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_whose_worker_left_is_put_back_once_the_lock_is_free() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::ZERO).build(&pool).await.expect("a store");
    let event = accept(&store, "evt_1").await;
    let state = async || store.get(&event).await.expect("an answer").expect("the event").state;
    let request = LeaseRequest::new(1, DAY);
    let mut leasing = Box::pin(store.lease(&request));
    let asked = std::future::poll_fn(|cx| Poll::Ready(leasing.as_mut().poll(cx).is_pending())).await;
    assert!(asked, "nobody has answered yet");
    eventually("it is leased", async || state().await == EventState::Running).await;
    let transaction = write_lock(&pool).await;
    drop(leasing);
    for n in 0..5 {
        // Asked behind the release, again and again: that has been refused by now, too.
        let refused = store.claim(&claim(&key(&n.to_string()))).await.expect_err("locked");
        assert_eq!(refused.kind(), StoreErrorKind::Locked);
    }
    transaction.rollback().await.expect("an end");
    eventually("it is put back", async || state().await == EventState::Waiting).await;
    assert_eq!(lease_one(&store).await.attempt, 1, "as if nobody had leased it before");
}

/// A caller that leaves after its event was written must not take it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_event_whose_caller_left_is_not_released() {
    let fixture = Fixture::new();
    let store = fixture.store().await;
    let mut seen = 0;
    for n in 0..200_u64 {
        let event = key(&n.to_string());
        let accepting = tokio::spawn({
            let (store, event) = (store.clone(), event.clone());
            async move {
                let request = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
                store.enqueue(&request, &stored_request("left")).await.map(|_| ())
            }
        });
        tokio::time::sleep(Duration::from_micros(n * 5)).await;
        accepting.abort();
        let answered = accepting.await.is_ok();
        // There is one writer, and it is asked in turn: whatever there was to be done is done.
        store.claim(&claim(&key("another"))).await.expect("an answer");
        match store.get(&event).await.expect("an answer") {
            Some(kept) => {
                assert_eq!(kept.state, EventState::Waiting);
                seen += usize::from(!answered);
            }
            None => assert!(!answered, "{n} was answered, and is lost"),
        }
    }
    println!("{seen} were written for callers that had left");
}
