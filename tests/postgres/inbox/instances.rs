//! Several instances on one table are one inbox.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tower_webhook::queue::{Filter, Leased, Order, Queue};
use tower_webhook::store::{Completion, Hold, PostgresStore, Store};

use super::queue::{KEPT, accept, accept_ordered, complete, lease, lease_one};
use crate::postgres::fixture::{Fixture, LEASE, WEEK, eventually, key};

/// Leases and completes until nothing is left; `note` is told before each completion.
async fn work(store: PostgresStore, batch: usize, note: impl Fn(&Leased)) {
    loop {
        let leased = lease(&store, batch).await;
        if leased.is_empty() {
            let counts = store.counts().await.expect("counts");
            if counts.waiting + counts.running == 0 {
                return;
            }
        }
        for leased in leased {
            note(&leased);
            complete(&store, &leased).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_instances_lease_every_event_once() {
    let fixture = Fixture::new().await;
    let keys: Vec<_> = (0..500).map(|n| key(&n.to_string())).collect();
    assert!(join_all(keys.iter().map(|key| accept(&fixture.store, key))).await.iter().all(|answer| *answer == KEPT));
    let runs = Arc::new(Mutex::new(Vec::new()));
    let workers = [fixture.store.clone(), fixture.store.clone(), fixture.another(), fixture.another()].map(|store| {
        let runs = runs.clone();
        tokio::spawn(work(store, 7, move |leased| runs.lock().expect("no panic").push(leased.key.clone())))
    });
    join_all(workers).await.into_iter().for_each(|worker| worker.expect("no panic"));
    let runs = runs.lock().expect("no panic");
    assert_eq!((runs.len(), runs.iter().collect::<HashSet<_>>().len()), (500, 500));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_instances_keep_every_order_one_at_a_time() {
    let fixture = Fixture::new().await;
    for n in 0..150 {
        accept_ordered(&fixture.store, &key(&n.to_string()), Order::of(format!("order {}", n % 5))).await;
    }
    let runs = Arc::new(Mutex::new(BTreeMap::<usize, Vec<usize>>::new()));
    let workers = [fixture.store.clone(), fixture.another(), fixture.another()].map(|store| {
        let runs = runs.clone();
        tokio::spawn(work(store, 10, move |leased| {
            let n: usize = leased.key.id().parse().expect("a number");
            runs.lock().expect("no panic").entry(n % 5).or_default().push(n);
        }))
    });
    join_all(workers).await.into_iter().for_each(|worker| worker.expect("no panic"));
    for (order, run) in runs.lock().expect("no panic").iter() {
        assert_eq!(*run, (0..30).map(|n| n * 5 + order).collect::<Vec<_>>());
    }
}

/// What no worker's statement sees of another's is seen by the database.
#[tokio::test]
async fn database_refuses_a_second_running_event_of_an_order() {
    let fixture = Fixture::new().await;
    for id in ["a", "b"] {
        accept_ordered(&fixture.store, &key(id), Order::of("order")).await;
    }
    assert_eq!(lease_one(&fixture.store).await.key, key("a"));
    let second = fixture.about("UPDATE events SET state = 'running' WHERE state = 'accepted'");
    let refused = sqlx::query(sqlx::AssertSqlSafe(second)).execute(&fixture.pool).await.expect_err("a second one");
    assert!(refused.as_database_error().expect("the server's word").is_unique_violation(), "{refused}");
}

/// Two workers that race for an order: the slower one's statement fails, is asked again, and leases the rest.
#[tokio::test]
async fn lease_that_meets_another_of_the_same_order_leases_the_rest() {
    let fixture = Fixture::new().await;
    for id in ["a", "b"] {
        accept_ordered(&fixture.store, &key(id), Order::of(id)).await;
    }
    // Fails once, as the index would.
    fixture
        .run(
            "CREATE SEQUENCE events_refusals;
         CREATE FUNCTION events_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            IF nextval('events_refusals') = 1 THEN RAISE EXCEPTION 'provoked' USING ERRCODE = '23505'; END IF;
            RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE UPDATE ON events FOR EACH ROW EXECUTE FUNCTION events_refuse()",
        )
        .await;
    assert_eq!(lease(&fixture.store, 10).await.len(), 2);
}

#[tokio::test]
async fn operators_do_not_wait_for_locked_rows() {
    let fixture = Fixture::new().await;
    for id in ["held", "free"] {
        assert_eq!(accept(&fixture.store, &key(id)).await, KEPT);
    }
    for leased in lease(&fixture.store, 10).await {
        assert_eq!(fixture.store.bury(&leased.claim(LEASE), "hopeless").await.expect("buried"), Hold::Held);
    }
    let mut theirs = crate::postgres::fixture::shared().connect().await;
    let hold =
        fixture.about(&format!("BEGIN; SELECT key FROM events WHERE key = '{}' FOR UPDATE", key("held").as_str()));
    crate::postgres::fixture::run_on(&mut theirs, hold).await;
    assert_eq!(fixture.store.requeue(&Filter::all(), false).await.expect("requeued").events, 1);
    assert_eq!(fixture.store.discard(&Filter::all(), LEASE).await.expect("discarded"), 1);
    assert_eq!(fixture.store.forget(&Filter::all()).await.expect("forgotten"), 1);
    crate::postgres::fixture::run_on(&mut theirs, "ROLLBACK".to_owned()).await;
    assert_eq!(fixture.store.requeue(&Filter::all(), false).await.expect("requeued").events, 1);
}

/// A line of waiting events costs the others nothing, and moves on whatever ends its first one.
#[tokio::test]
async fn events_behind_others_are_not_looked_at_until_their_turn() {
    let fixture = Fixture::new().await;
    for id in ["a", "b", "c", "d", "e"] {
        accept_ordered(&fixture.store, &key(id), Order::of("order")).await;
    }
    let behind = "SELECT count(*) FROM events WHERE due_at = 'infinity'";
    assert_eq!(fixture.count(behind).await, 4);
    let first = lease_one(&fixture.store).await;
    complete(&fixture.store, &first).await;
    assert_eq!(fixture.count(behind).await, 3);
    let second = lease_one(&fixture.store).await;
    assert_eq!(fixture.store.bury(&second.claim(LEASE), "hopeless").await.expect("buried"), Hold::Held);
    assert_eq!(fixture.store.discard(&Filter::one(key("c")), WEEK).await.expect("discarded"), 1);
    let fourth = lease_one(&fixture.store).await;
    assert_eq!(fourth.key, key("d"));
    // By a handler's transaction: the machine asks what came of it.
    let completed = fixture
        .about("UPDATE events SET state = 'completed', due_at = NULL, expires_at = now() WHERE state = 'running'");
    sqlx::query(sqlx::AssertSqlSafe(completed)).execute(&fixture.pool).await.expect("completed");
    assert_eq!(fixture.store.release(&fourth.key, fourth.token).await.expect("an answer"), Hold::Lost);
    assert_eq!(lease_one(&fixture.store).await.key, key("e"));
    assert_eq!(fixture.count(behind).await, 0);
}

/// Whoever was to let them go on has crashed.
#[tokio::test]
async fn events_that_are_held_up_behind_nothing_are_found() {
    let fixture = Fixture::new().await;
    // More orders than are looked at in one go.
    fixture.run(
        "INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint, arrival, endpoint, due_at,
                             head, body, order_key)
         SELECT '1.0:a//' || n, 'accepted', '', now(), now(), 0, 0, n, 'a', 'infinity', '', '', 'order ' || n
           FROM generate_series(1, 1200) n",
    )
    .await;
    let leased = AtomicUsize::new(0);
    eventually("all are leased", async || {
        leased.fetch_add(lease(&fixture.store, 500).await.len(), Ordering::Relaxed) == 1_200
    })
    .await;
}

/// What runs of an order now, and what has run.
#[derive(Default)]
struct Books {
    running: HashSet<usize>,
    done: BTreeMap<usize, Vec<usize>>,
}

/// Leases, and completes, retries, buries or releases by turns, until `all` events are completed.
async fn stumble(store: PostgresStore, books: Arc<Mutex<Books>>, all: usize) {
    for turn in 0.. {
        let done = || books.lock().expect("no panic").done.values().map(Vec::len).sum::<usize>();
        if done() == all {
            return;
        }
        let leased = lease(&store, 3).await;
        if leased.is_empty() {
            store.requeue(&Filter::all(), false).await.expect("requeued");
        }
        for (n, leased) in leased.into_iter().enumerate() {
            let (order, number) = leased.key.id().split_once('.').expect("two numbers");
            let (order, number): (usize, usize) = (order.parse().expect("one"), number.parse().expect("one"));
            assert!(books.lock().expect("no panic").running.insert(order), "two of one order at once");
            tokio::task::yield_now().await;
            // Before it is settled: afterwards somebody else may be quicker with the next one.
            let claim = leased.claim(LEASE);
            books.lock().expect("no panic").running.remove(&order);
            let hold = match (turn + n) % 5 {
                0 => store.retry(&claim, Duration::ZERO, "flaky").await,
                1 => store.release(&leased.key, leased.token).await,
                // Overtaken by those behind it, it would not come back in its place: only the last one of an order is.
                2 if number == PER_ORDER - 1 => store.bury(&claim, "hopeless").await,
                _ => {
                    books.lock().expect("no panic").done.entry(order).or_default().push(number);
                    store.complete(&claim, &Completion::succeeded("200 OK", WEEK)).await
                }
            };
            assert_eq!(hold.expect("an answer"), Hold::Held);
        }
    }
}

const ORDERS: usize = 4;
const PER_ORDER: usize = 40;

/// Events arrive while others of their order end: none is left behind, and none overtakes another.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn orders_move_on_while_events_arrive_fail_and_end() {
    let fixture = Fixture::new().await;
    let books = Arc::new(Mutex::new(Books::default()));
    let senders = (0..ORDERS).map(|order| {
        let store = if order % 2 == 0 { fixture.store.clone() } else { fixture.another() };
        tokio::spawn(async move {
            for n in 0..PER_ORDER {
                accept_ordered(&store, &key(&format!("{order}.{n}")), Order::of(format!("order {order}"))).await;
            }
        })
    });
    let stores = [fixture.store.clone(), fixture.another(), fixture.another()];
    let workers = stores.map(|store| tokio::spawn(stumble(store, books.clone(), ORDERS * PER_ORDER)));
    let all = senders.collect::<Vec<_>>().into_iter().chain(workers);
    join_all(all).await.into_iter().for_each(|task| task.expect("no panic"));
    for (order, done) in &books.lock().expect("no panic").done {
        assert_eq!(*done, (0..PER_ORDER).collect::<Vec<_>>(), "order {order}");
    }
    assert_eq!(fixture.count("SELECT count(*) FROM events WHERE due_at IS NOT NULL").await, 0);
}
