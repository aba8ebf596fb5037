//! What is kept of the inbox, where, and for how long.

use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::queue::{Changed, EventState, Filter, Order, Page, Queue};
use tower_webhook::store::{Claim, ClaimToken, Hold, SqliteStore, Store};
use tower_webhook::testing::ManualClock;

use crate::sqlite::fixture::{DAY, Fixture, LEASE, PATIENCE, claim, is_fresh, key};
use crate::sqlite::queue::{NOW, accept, accept_in, at, complete, count, lease, lease_one, stored_request};

#[tokio::test]
async fn purge_keeps_dead_letters_and_the_last_applied_sequence() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let (store, pool) = (at(&fixture, &clock).await, fixture.pool().await);
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
    assert_eq!((kept.state, kept.request), (EventState::Dead, Some(stored_request("dead"))));
    accept_in(&store, "sequence 6", Some(Order::of("account").sequence(6))).await;
    let leased = lease(&store, 2).await;
    assert_eq!(leased.iter().map(|leased| leased.superseded).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn numbers_are_not_given_twice() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let store = at(&fixture, &clock).await;
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
    let requests = count(&fixture.pool().await, "webhook_events_parcels").await;
    assert_eq!(requests, 0, "no body without its event");
}

/// A thousand at a time, so that others get their turn; and each of them once.
#[tokio::test]
async fn many_dead_letters_are_requeued_in_the_order_of_their_arrival() {
    const MANY: usize = 2_300;
    let fixture = Fixture::new();
    let store = fixture.store().await;
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
    assert_eq!(store.requeue(&Filter::all(), false).await.expect("an answer"), Changed::new(MANY as u64));
    assert_eq!(store.requeue(&Filter::all(), false).await.expect("an answer"), Changed::new(0));
    assert_eq!(ids().await, before);
    assert_eq!(store.waiting(u64::MAX).await.expect("an answer"), MANY as u64);
    assert_eq!(store.discard(&Filter::all(), DAY).await.expect("an answer"), MANY as u64);
    assert_eq!(store.forget(&Filter::all()).await.expect("an answer"), MANY as u64);
}

/// Bodies are in a table of their own, and a claim has no need of it.
#[tokio::test]
async fn claims_do_not_touch_the_bodies() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
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
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
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
    let fixture = Fixture::new();
    let open = async || SqliteStore::builder().lock_wait(PATIENCE).open(fixture.path()).await.expect("a store");
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
