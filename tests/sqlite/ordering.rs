//! Events of the inbox that wait for each other.

use std::time::Duration;

use tower_webhook::queue::{Filter, Order, Queue};
use tower_webhook::store::{Hold, SqliteStore, Store};

use crate::sqlite::fixture::{DAY, Fixture, LEASE, PATIENCE, done, write_lock};
use crate::sqlite::queue::{accept_in, complete, complete_in, lease, lease_one};

/// Through [`SqliteStore::enlistment`], by a driver that knows nothing of inboxes.
#[tokio::test]
async fn completion_in_a_handlers_transaction_counts_as_applied() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
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
async fn next_event_of_an_order_runs_whatever_becomes_of_the_first() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
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

/// Of each resource one at a time, whoever leases it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_on_one_file_keep_the_order() {
    let fixture = Fixture::new();
    let open = async || SqliteStore::builder().lock_wait(PATIENCE).open(fixture.path()).await.expect("a store");
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
