//! Batches that other processes write into. A trigger plays them: it keeps one row from being written, as often as it is tried.

use std::time::Duration;

use futures_util::future::join;
use sqlx::sqlite::SqlitePool;
use tower_webhook::Outcome;
use tower_webhook::store::{SqliteStore, Store, StoreErrorKind};

use crate::sqlite::fixture::{Fixture, claim, eventually, is_fresh, key, write_lock};
use crate::support::audited::Audited;
use crate::support::checker::Ledger;

/// A store that does not wait for long, and with a pool on the same file.
async fn impatient(fixture: &Fixture, wait: Duration) -> (SqliteStore, SqlitePool) {
    let pool = fixture.pool().await;
    (SqliteStore::builder().lock_wait(wait).build(&pool).await.expect("a store"), pool)
}

/// From now on every batch with the event `theirs` in it is written without it.
async fn contend(pool: &SqlitePool) {
    let contender = "CREATE TRIGGER contender BEFORE INSERT ON webhook_events WHEN NEW.key LIKE '%/theirs' \
        BEGIN SELECT RAISE(IGNORE); END";
    sqlx::query(contender).execute(pool).await.expect("a trigger");
}

async fn rows(pool: &SqlitePool) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM webhook_events").fetch_one(pool).await.expect("a number")
}

/// `Locked` would say that nothing took effect, and nobody would release what did.
#[tokio::test]
async fn half_written_batch_is_in_doubt() {
    let fixture = Fixture::new();
    let (store, pool) = impatient(&fixture, Duration::ZERO).await;
    contend(&pool).await;
    let (mine, theirs) = (key("mine"), key("theirs"));
    let (first, second) = (claim(&mine), claim(&theirs));
    // Asked for together on one thread: one batch.
    let answers = join(store.claim(&first), store.claim(&second)).await;
    for answer in [answers.0, answers.1] {
        assert_eq!(answer.expect_err("not written as a whole").kind(), StoreErrorKind::TimedOut);
    }
    assert_eq!(rows(&pool).await, 1, "one of them was written");
    assert!(is_fresh(store.claim(&first).await.expect("an answer")), "and is found under its own token");
}

/// The doubt is not forgotten when the same is asked again and certainly refused.
#[tokio::test(flavor = "multi_thread")]
async fn half_written_batch_stays_in_doubt_behind_a_lock() {
    let fixture = Fixture::new();
    let (store, pool) = impatient(&fixture, Duration::from_secs(1)).await;
    contend(&pool).await;
    let claiming = tokio::spawn(async move {
        let (mine, theirs) = (key("mine"), key("theirs"));
        let (first, second) = (claim(&mine), claim(&theirs));
        let (mine, theirs) = join(store.claim(&first), store.claim(&second)).await;
        [mine, theirs].map(|answer| answer.expect_err("not written as a whole").kind())
    });
    eventually("a half of it is written", async || rows(&pool).await == 1).await;
    let lock = write_lock(&pool).await;
    assert_eq!(claiming.await.expect("no panic"), [StoreErrorKind::TimedOut; 2]);
    lock.rollback().await.expect("the end of the transaction");
}

#[tokio::test]
async fn claim_of_a_half_written_batch_is_released() {
    let fixture = Fixture::new();
    let (store, pool) = impatient(&fixture, Duration::ZERO).await;
    contend(&pool).await;
    let receiver = Audited::over(store, Ledger::default());
    let answers = join(receiver.deliver("mine"), receiver.deliver("theirs")).await;
    assert_eq!([answers.0.status, answers.1.status].map(|status| status.as_u16()), [503, 503]);
    receiver.settled().await;
    sqlx::query("DROP TRIGGER contender").execute(&pool).await.expect("no more contention");
    for id in ["mine", "theirs"] {
        assert_eq!(receiver.deliver(id).await.outcome, Some(Outcome::Completed), "{id}: not held until its lease ends");
    }
    assert_eq!(receiver.handler.runs(), 2);
}
