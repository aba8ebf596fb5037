//! Events that another program has written, or damaged.

use sqlx::SqlitePool;
use tower_webhook::queue::{EventState, Filter, KindLimits, LeaseRequest, Order, Page, Queue};

use crate::sqlite::fixture::{Fixture, LEASE};
use crate::sqlite::queue::{accept, accept_in, lease};
use crate::support::logs::Logs;

/// Text that is none, a number that does not fit, a key that is none.
const DAMAGES: [&str; 4] = [
    "event_type = CAST(x'ff' AS TEXT)",
    "order_key = CAST(x'fffe' AS TEXT)",
    "key = 'no key'",
    "endpoint = NULL, key = CAST(x'fffffe' AS TEXT)",
];

async fn damage(pool: &SqlitePool, key: &str, damage: &str) {
    let damage = format!("UPDATE webhook_events SET {damage} WHERE key = ?");
    let damaged = sqlx::query(sqlx::AssertSqlSafe(damage)).bind(key).execute(pool).await.expect("a damage");
    assert_eq!(damaged.rows_affected(), 1);
}

#[tokio::test]
async fn unreadable_event_is_reported_and_buried_and_others_are_leased() {
    let (logs, _guard) = Logs::capture();
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    for (n, how) in DAMAGES.into_iter().enumerate() {
        let bad = accept(&store, &format!("bad {n}")).await;
        damage(&pool, bad.as_str(), how).await;
    }
    for id in ["good", "better"] {
        accept(&store, id).await;
    }
    let leased = lease(&store, 5).await;
    assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), ["good"], "behind four bad ones");
    assert_eq!(logs.count("a stored event could not be read"), DAMAGES.len());
    assert!(logs.lines().iter().all(|line| !line.text.contains("bad 0")), "a body is nobody's business");
    assert_eq!(lease(&store, 5).await.len(), 1);
    assert!(lease(&store, 5).await.is_empty());
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.waiting, counts.running, counts.dead), (0, 2, DAMAGES.len() as u64));
    assert_eq!(logs.count("a stored event could not be read"), DAMAGES.len(), "each of them once");
}

/// A worker that asks for one at a time gets one, and does not take the inbox for empty.
#[tokio::test]
async fn lease_of_one_passes_unreadable_events() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    for (n, how) in DAMAGES.into_iter().enumerate() {
        let bad = accept(&store, &format!("bad {n}")).await;
        damage(&pool, bad.as_str(), how).await;
    }
    accept(&store, "good").await;
    assert_eq!(crate::sqlite::queue::lease_one(&store).await.key.id(), "good");
}

/// Those behind it would wait for ever.
#[tokio::test]
async fn unreadable_event_does_not_stall_its_order() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let first = accept_in(&store, "first", Some(Order::of("account"))).await;
    accept_in(&store, "second", Some(Order::of("account"))).await;
    damage(&pool, first.as_str(), DAMAGES[0]).await;
    assert_eq!(crate::sqlite::queue::lease_one(&store).await.key.id(), "second");
}

/// Whether it is met among the first, or on the way from kind to kind.
#[tokio::test]
async fn unreadable_event_does_not_block_other_kinds() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let bad = accept(&store, "bad").await;
    damage(&pool, bad.as_str(), "endpoint = CAST(x'ff' AS TEXT), event_type = CAST(x'ff' AS TEXT)").await;
    for n in 0..300 {
        accept(&store, &n.to_string()).await;
    }
    sqlx::query("UPDATE webhook_events SET event_type = 'x' WHERE event_type IS NULL")
        .execute(&pool)
        .await
        .expect("types");
    accept(&store, "untyped").await;
    let none_of_x = KindLimits::new(9).with("x", 0);
    let mut request = LeaseRequest::new(2, LEASE);
    request.per_type = Some(&none_of_x);
    for expected in [&["untyped"][..], &[]] {
        let leased = store.lease(&request).await.expect("an answer");
        assert_eq!(leased.iter().map(|leased| leased.key.id()).collect::<Vec<_>>(), expected);
    }
    let listed = store.list(&Filter::all(), &Page::first(1_000)).await.expect("an answer");
    assert_eq!(listed.len(), 301, "all that can be read");
    assert!(listed.iter().all(|event| event.state != EventState::Dead));
}
