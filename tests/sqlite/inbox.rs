//! The inbox's own: what is on disk, who waits for whom, and what goes when.

use std::time::Duration;

use sqlx::SqlitePool;
use tower_webhook::EventKey;
use tower_webhook::inbox::{EventState, Filter, Inbox, LeaseRequest, Leased, Order, Page, Parcel};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, SqliteStore, Store, StoreErrorKind};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

use crate::bed::{Bed, DAY, LEASE, PATIENCE, claim, done, eventually, is_fresh, key, write_lock};

const NOW: u64 = 1_700_000_000;

/// A file for every store.
struct Files(ManualClock, std::sync::Mutex<Vec<Bed>>);

impl Harness for Files {
    type Store = SqliteStore;

    async fn store(&self) -> SqliteStore {
        let bed = Bed::new();
        let store = SqliteStore::builder().clock(self.0.clone()).open(bed.path()).await.expect("a store");
        self.1.lock().expect("no panic").push(bed);
        store
    }

    async fn pass(&self, time: Duration) {
        self.0.advance(time);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inbox_conforms() {
    conformance::inbox::run(&Files(ManualClock::at_unix(NOW), Default::default())).await;
}

pub(crate) fn parcel(body: &str) -> Parcel {
    Parcel::new("POST / HTTP/1.1", body.to_owned(), std::time::UNIX_EPOCH + Duration::from_secs(NOW))
}

pub(crate) async fn accept(store: &SqliteStore, id: &str) -> EventKey {
    accept_in(store, id, None).await
}

async fn accept_in(store: &SqliteStore, id: &str, order: Option<Order>) -> EventKey {
    let (key, parcel) = (key(id), parcel(id));
    let parcel = order.map_or(parcel.clone(), |order| parcel.ordered(order));
    assert!(is_fresh(store.accept(&claim(&key), &parcel).await.expect("an answer")), "{id}");
    key
}

pub(crate) async fn lease(store: &SqliteStore, limit: usize) -> Vec<Leased> {
    store.lease(&LeaseRequest::new(limit, LEASE)).await.expect("an answer")
}

async fn lease_one(store: &SqliteStore) -> Leased {
    let mut leased = lease(store, 1).await;
    assert_eq!(leased.len(), 1, "something is due");
    leased.remove(0)
}

async fn complete(store: &SqliteStore, leased: &Leased, retention: Duration) {
    let done = Completion::succeeded("200 OK", retention);
    assert_eq!(store.complete(&leased.claim(LEASE), &done).await.expect("an answer"), Hold::Held);
}

async fn complete_in(connection: &mut sqlx::SqliteConnection, leased: &Leased) {
    let completed = sqlx::query(tower_webhook::store::sqlite::COMPLETE_SQL)
        .bind(leased.key.as_str())
        .bind(&leased.token.as_bytes()[..])
        .bind("200 OK")
        .bind(1_000_000_i64)
        .execute(connection);
    assert_eq!(completed.await.expect("a change").rows_affected(), 1);
}

async fn count(pool: &SqlitePool, table: &'static str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}")))
        .fetch_one(pool)
        .await
        .expect("a number")
}

async fn at(bed: &Bed, clock: &ManualClock) -> SqliteStore {
    SqliteStore::builder().clock(clock.clone()).open(bed.path()).await.expect("a store")
}

#[tokio::test]
async fn accepted_event_is_there_for_whoever_opens_the_file_next() {
    let bed = Bed::new();
    let store = bed.store().await;
    let event = accept(&store, "evt_1").await;
    // Not closed, not flushed by anybody else: the answer alone promises it.
    let other = bed.store().await;
    let kept = other.get(&event).await.expect("an answer").expect("the event");
    assert_eq!((kept.state, kept.parcel), (EventState::Waiting, Some(parcel("evt_1"))));
    assert_eq!(other.claim(&claim(&event)).await.expect("an answer"), Claim::Accepted { same_body: true });
    let leased = lease_one(&other).await;
    assert_eq!((leased.key, leased.parcel), (event, parcel("evt_1")));
    assert!(lease(&store, 1).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_not_accepted_while_it_cannot_be_written() {
    let bed = Bed::new();
    let pool = bed.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::from_millis(100)).build(&pool).await.expect("a store");
    let transaction = write_lock(&pool).await;
    let (event, parcel) = (key("evt_1"), parcel("evt_1"));
    let mine = claim(&event);
    assert_eq!(store.accept(&mine, &parcel).await.expect_err("locked").kind(), StoreErrorKind::Locked);
    transaction.rollback().await.expect("an end");
    assert_eq!((count(&pool, "webhook_events").await, count(&pool, "webhook_events_parcels").await), (0, 0));
    assert!(is_fresh(store.accept(&mine, &parcel).await.expect("an answer")));
    assert!(is_fresh(store.accept(&mine, &parcel).await.expect("an answer")), "a lost reply, asked again");
    assert_eq!((count(&pool, "webhook_events").await, count(&pool, "webhook_events_parcels").await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn open_transaction_of_a_handler_holds_leases_up_for_a_bounded_time() {
    let bed = Bed::new();
    let pool = bed.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::from_millis(200)).build(&pool).await.expect("a store");
    let transaction = write_lock(&pool).await;
    assert!(lease(&store, 1).await.is_empty(), "an idle worker does not notice");
    transaction.rollback().await.expect("an end");
    let event = accept(&store, "evt_1").await;

    let transaction = write_lock(&pool).await;
    let started = std::time::Instant::now();
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

/// The worker's deadline was shorter than the wait for the lock, or its task was dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn event_whose_worker_left_before_the_answer_is_put_back() {
    let bed = Bed::new();
    let store = bed.store().await;
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
    let bed = Bed::new();
    let (store, pool) = (bed.store().await, bed.pool().await);
    for id in ["running", "retried", "waiting"] {
        accept(&store, id).await;
    }
    let leased = lease(&store, 2).await;
    let later = store.retry(&leased[1].claim(LEASE), DAY, "not now").await.expect("an answer");
    assert_eq!((later, lease(&store, 3).await.len()), (Hold::Held, 1));
    // The clock of the last boot had come further than this one's.
    let reboot = "UPDATE webhook_events SET boot = 'another', due_at = due_at + 1000000000, lease_until = lease_until + 1000000000";
    sqlx::query(reboot).execute(&pool).await.expect("a reboot");
    let after = bed.store().await;
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
            let (bed, clock) = (Bed::new(), ManualClock::at_unix(NOW));
            let store = at(&bed, &clock).await;
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

#[tokio::test]
async fn purge_keeps_dead_letters_and_the_last_applied_sequence() {
    let (bed, clock) = (Bed::new(), ManualClock::at_unix(NOW));
    let (store, pool) = (at(&bed, &clock).await, bed.pool().await);
    let minute = Duration::from_secs(60);
    accept(&store, "dead").await;
    let dead = lease_one(&store).await;
    assert_eq!(store.bury(&dead.claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
    for sequence in [7, 3] {
        let order = Order::of("account").sequence(sequence);
        accept_in(&store, &format!("sequence {sequence}"), Some(order)).await;
        let leased = lease_one(&store).await;
        assert_eq!(leased.superseded, sequence == 3);
        complete(&store, &leased, minute).await;
    }
    accept(&store, "waiting").await;
    assert_eq!(store.purge().await.expect("a purge"), 0);
    assert_eq!(count(&pool, "webhook_events_parcels").await, 4);

    clock.advance(400 * DAY);
    assert_eq!(store.purge().await.expect("a purge"), 2);
    assert_eq!(count(&pool, "webhook_events_parcels").await, 2, "bodies go with their events");
    let kept = store.get(&dead.key).await.expect("an answer").expect("the dead letter");
    assert_eq!((kept.state, kept.parcel), (EventState::Dead, Some(parcel("dead"))));
    accept_in(&store, "sequence 6", Some(Order::of("account").sequence(6))).await;
    let leased = lease(&store, 2).await;
    assert_eq!(leased.iter().map(|leased| leased.superseded).collect::<Vec<_>>(), [false, true]);
}

/// Through [`SqliteStore::enlistment`], by a driver that knows nothing of inboxes.
#[tokio::test]
async fn completion_in_a_handlers_transaction_counts_as_applied() {
    let bed = Bed::new();
    let (store, pool) = (bed.store().await, bed.pool().await);
    for sequence in [2, 1] {
        accept_in(&store, &sequence.to_string(), Some(Order::of("account").sequence(sequence))).await;
    }
    let leased = lease_one(&store).await;
    let mut transaction = write_lock(&pool).await;
    complete_in(&mut transaction, &leased).await;
    transaction.commit().await.expect("a commit");
    assert_eq!(store.complete(&leased.claim(LEASE), &done()).await.expect("an answer"), Hold::Held);
    let older = lease_one(&store).await;
    assert_eq!((older.key.id(), older.superseded), ("1", true));
}

/// However the one in front of it ends.
#[tokio::test]
async fn next_in_line_goes_on_whatever_becomes_of_the_first() {
    let bed = Bed::new();
    let (store, pool) = (bed.store().await, bed.pool().await);
    for n in 0..6 {
        accept_in(&store, &n.to_string(), Some(Order::of("account"))).await;
    }
    let behind = async || -> i64 {
        let behind = "SELECT count(*) FROM webhook_events WHERE behind IS NOT NULL AND state = 'accepted'";
        sqlx::query_scalar(behind).fetch_one(&pool).await.expect("a number")
    };
    for n in 0..5 {
        assert_eq!(behind().await, 5 - n, "the others are not even looked at");
        let first = lease_one(&store).await;
        assert_eq!(first.key.id(), n.to_string());
        assert!(lease(&store, 10).await.is_empty());
        match n {
            0 => complete(&store, &first, DAY).await,
            1 => assert_eq!(store.bury(&first.claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held),
            2 => {
                assert_eq!(store.release(&first.key, first.token).await.expect("an answer"), Hold::Held);
                let discarded = store.discard(&Filter::one(first.key), DAY).await.expect("an answer");
                assert_eq!(discarded, 1);
            }
            3 => {
                let deleted = sqlx::query("DELETE FROM webhook_events WHERE key = ?").bind(first.key.as_str());
                deleted.execute(&pool).await.expect("an operator with a shell");
            }
            _ => {
                let mut transaction = write_lock(&pool).await;
                complete_in(&mut transaction, &first).await;
                transaction.commit().await.expect("a commit");
            }
        }
    }
    assert_eq!(lease_one(&store).await.key.id(), "5");
}

#[tokio::test]
async fn numbers_are_not_given_twice() {
    let (bed, clock) = (Bed::new(), ManualClock::at_unix(NOW));
    let store = at(&bed, &clock).await;
    let mut last = 0;
    for n in 0..6 {
        let event = accept(&store, &n.to_string()).await;
        let arrival = store.get(&event).await.expect("an answer").expect("the event").arrival;
        assert!(arrival > last, "{arrival} after {last}");
        last = arrival;
        complete(&store, &lease_one(&store).await, Duration::from_secs(60)).await;
        match n % 3 {
            0 => assert_eq!(store.forget(&Filter::all()).await.expect("an answer"), 1),
            1 => {
                clock.advance(DAY);
                assert_eq!(store.purge().await.expect("a purge"), 1);
            }
            // An inline receiver takes the expired row over.
            _ => {
                clock.advance(DAY);
                assert!(is_fresh(store.claim(&claim(&event)).await.expect("an answer")));
                assert_eq!(store.get(&event).await.expect("an answer"), None);
            }
        }
    }
    let parcels = count(&bed.pool().await, "webhook_events_parcels").await;
    assert_eq!(parcels, 0, "no body without its event");
}

/// A thousand at a time, so that others get their turn; and each of them once.
#[tokio::test]
async fn many_dead_letters_are_requeued_in_the_order_of_their_arrival() {
    const MANY: usize = 2_300;
    let bed = Bed::new();
    let store = bed.store().await;
    let accepting = (0..MANY).map(|n| {
        let store = store.clone();
        tokio::spawn(async move { accept(&store, &n.to_string()).await })
    });
    futures_util::future::join_all(accepting.collect::<Vec<_>>()).await;
    let leased = lease(&store, MANY).await;
    assert_eq!(leased.len(), MANY);
    let burying = leased.iter().map(|leased| {
        let (store, leased) = (store.clone(), leased.clone());
        tokio::spawn(async move { store.bury(&leased.claim(LEASE), "hopeless").await.expect("an answer") })
    });
    futures_util::future::join_all(burying.collect::<Vec<_>>()).await;
    let ids = async || {
        let events = store.list(&Filter::all(), &Page::first(MANY)).await.expect("an answer");
        events.into_iter().map(|event| event.key.id().to_owned()).collect::<Vec<_>>()
    };
    let before = ids().await;
    assert_eq!(store.requeue(&Filter::all(), false).await.expect("an answer"), MANY as u64);
    assert_eq!(store.requeue(&Filter::all(), false).await.expect("an answer"), 0);
    assert_eq!(ids().await, before);
    assert_eq!(store.waiting(u64::MAX).await.expect("an answer"), MANY as u64);
    assert_eq!(store.discard(&Filter::all(), DAY).await.expect("an answer"), MANY as u64);
    assert_eq!(store.forget(&Filter::all()).await.expect("an answer"), MANY as u64);
}

/// Bodies are in a table of their own, and a claim has no need of it.
#[tokio::test]
async fn claims_do_not_touch_the_bodies() {
    let bed = Bed::new();
    let (store, pool) = (bed.store().await, bed.pool().await);
    let event = accept(&store, "evt_1").await;
    let leased = lease_one(&store).await;
    for gone in ["TRIGGER webhook_events_replaced", "TRIGGER webhook_events_deleted", "TABLE webhook_events_parcels"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("DROP {gone}"))).execute(&pool).await.expect("no bodies");
    }
    assert_eq!(store.claim(&claim(&event)).await.expect("an answer"), Claim::Accepted { same_body: true });
    assert_eq!(store.renew(&leased.claim(LEASE)).await.expect("an answer"), Hold::Held);
    assert!(is_fresh(store.claim(&claim(&key("inline"))).await.expect("an answer")));
    complete(&store, &leased, DAY).await;
}

/// The index, and not the wait, decides what the first of many costs.
#[tokio::test]
async fn waiting_and_leasing_go_by_their_indexes() {
    let bed = Bed::new();
    let (store, pool) = (bed.store().await, bed.pool().await);
    accept(&store, "evt_1").await;
    for (query, index) in [
        (
            "SELECT count(*) FROM (SELECT 1 FROM webhook_events WHERE state = 'accepted' AND arrival IS NOT NULL LIMIT 5)",
            "COVERING INDEX",
        ),
        (
            "SELECT 1 FROM webhook_events WHERE state = 'failed' AND arrival IS NOT NULL AND arrival > 3 ORDER BY arrival LIMIT 5",
            "_arrivals",
        ),
    ] {
        let plan =
            sqlx::query_as::<_, (i64, i64, i64, String)>(sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {query}")));
        let plan: Vec<_> = plan.fetch_all(&pool).await.expect("a plan").into_iter().map(|step| step.3).collect();
        assert!(plan.iter().any(|step| step.contains(index)), "{plan:?}");
        assert!(!plan.iter().any(|step| step.contains("TEMP B-TREE")), "{plan:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_lease_every_event_once() {
    let bed = Bed::new();
    let open = async || SqliteStore::builder().lock_wait(PATIENCE).open(bed.path()).await.expect("a store");
    let stores = [open().await, open().await];
    for n in 0..400 {
        accept(&stores[n % 2], &n.to_string()).await;
    }
    let workers: Vec<_> = (0..8)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                let mut keys = Vec::new();
                loop {
                    match lease(&store, 7).await {
                        leased if leased.is_empty() => return keys,
                        leased => keys.extend(leased.into_iter().map(|leased| (leased.key, leased.token))),
                    }
                }
            })
        })
        .collect();
    let mut leased: Vec<(EventKey, ClaimToken)> = Vec::new();
    for worker in workers {
        leased.extend(worker.await.expect("no panic"));
    }
    let keys: std::collections::HashSet<_> = leased.iter().map(|(key, _)| key).collect();
    let tokens: std::collections::HashSet<_> = leased.iter().map(|(_, token)| token).collect();
    assert_eq!((leased.len(), keys.len(), tokens.len()), (400, 400, 400));
}

/// Of each resource one at a time, whoever leases it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_keep_the_order() {
    let bed = Bed::new();
    let open = async || SqliteStore::builder().lock_wait(PATIENCE).open(bed.path()).await.expect("a store");
    let stores = [open().await, open().await];
    for n in 0..120 {
        accept_in(&stores[n % 2], &n.to_string(), Some(Order::of(format!("resource {}", n % 6)))).await;
    }
    let runs = std::sync::Arc::new(std::sync::Mutex::new(vec![Vec::new(); 6]));
    let workers = (0..6).map(|n| {
        let (store, runs) = (stores[n % 2].clone(), runs.clone());
        tokio::spawn(async move {
            while store.counts().await.expect("an answer").completed < 120 {
                for leased in lease(&store, 3).await {
                    let n: usize = leased.key.id().parse().expect("a number");
                    runs.lock().expect("no panic")[n % 6].push(n);
                    match n % 4 {
                        0 if leased.attempt == 1 => {
                            let retried = store.retry(&leased.claim(LEASE), Duration::from_millis(3), "flaky").await;
                            assert_eq!(retried.expect("an answer"), Hold::Held);
                        }
                        _ => complete(&store, &leased, DAY).await,
                    }
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("no panic");
    }
    for (resource, mut run) in runs.lock().expect("no panic").drain(..).enumerate() {
        run.dedup();
        assert_eq!(run, (0..20).map(|n| n * 6 + resource).collect::<Vec<_>>());
    }
}

/// A caller that leaves after its event was written must not take it back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_event_whose_caller_left_is_not_released() {
    let bed = Bed::new();
    let store = bed.store().await;
    let mut seen = 0;
    for n in 0..200_u64 {
        let event = key(&n.to_string());
        let accepting = tokio::spawn({
            let (store, event) = (store.clone(), event.clone());
            async move {
                let request = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
                store.accept(&request, &parcel("left")).await.map(|_| ())
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
