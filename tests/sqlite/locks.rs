//! While a handler's transaction holds SQLite's one write lock.

use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use tower_webhook::store::{Claim, ClaimToken, Hold, SqliteStore, Store, StoreErrorKind};

use crate::sqlite::disks::cause;
use crate::sqlite::fixture::{Fixture, PATIENCE, claim, done, is_fresh, key, write_lock};

#[tokio::test(flavor = "multi_thread")]
async fn writers_wait_for_the_lock_and_readers_do_not() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::builder().lock_wait(Duration::from_millis(300)).build(&pool).await.expect("a store");
    let (completed, running, fresh) = (key("completed"), key("running"), key("fresh"));
    let (first, mine) = (claim(&completed), claim(&running));
    for claim in [&first, &mine] {
        assert!(is_fresh(store.claim(claim).await.expect("an answer")));
    }
    assert_eq!(store.complete(&first, &done()).await.expect("an answer"), Hold::Held);

    let transaction = write_lock(&pool).await;
    // These keep on asking, in the same batches as the readers.
    let started = Instant::now();
    let writers: Vec<_> = (0..16)
        .map(|n| {
            let store = store.clone();
            tokio::spawn(async move { store.claim(&claim(&key(&format!("new_{n}")))).await })
        })
        .collect();
    while !writers.iter().all(tokio::task::JoinHandle::is_finished) {
        let seen = store.claim(&claim(&completed)).await.expect("an answer while the lock is held");
        assert_eq!(seen, Claim::Completed { same_body: true });
        let seen = store.claim(&claim(&running)).await.expect("an answer while the lock is held");
        assert_eq!(seen, Claim::InFlight { same_body: true });
        assert_eq!(store.complete(&first, &done()).await.expect("an answer"), Hold::Held, "it was");
        assert_eq!(store.release(&completed, mine.token).await.expect("an answer"), Hold::Lost);
        assert!(started.elapsed() < PATIENCE, "the wait never ends");
    }
    for writer in writers {
        assert_eq!(writer.await.expect("no panic").expect_err("locked").kind(), StoreErrorKind::Locked);
    }
    assert_eq!(store.renew(&mine).await.expect_err("locked").kind(), StoreErrorKind::Locked);
    assert_eq!(store.release(&running, mine.token).await.expect_err("locked").kind(), StoreErrorKind::Locked);
    assert_eq!(store.purge().await.expect_err("locked").kind(), StoreErrorKind::Locked);

    transaction.rollback().await.expect("the end of the transaction");
    assert_eq!(store.renew(&mine).await.expect("an answer"), Hold::Held);
    assert!(is_fresh(store.claim(&claim(&fresh)).await.expect("an answer")), "as if nothing had been");
}

#[tokio::test(flavor = "multi_thread")]
async fn lock_that_is_given_up_in_time_is_not_noticed() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::builder().lock_wait(PATIENCE).build(&pool).await.expect("a store");
    let transaction = write_lock(&pool).await;
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.claim(&claim(&key("evt_1"))).await })
    };
    // Only read, but in the batches in which the claim is refused.
    for _ in 0..20 {
        let nothing = store.release(&key("nothing"), ClaimToken::random()).await;
        assert_eq!(nothing.expect("an answer"), Hold::Held);
    }
    assert!(!waiting.is_finished());
    transaction.commit().await.expect("a commit");
    assert!(is_fresh(waiting.await.expect("no panic").expect("an answer")));
}

#[tokio::test]
async fn database_in_memory_is_refused() {
    let pool = SqlitePool::connect("sqlite::memory:").await.expect("a pool");
    let error = SqliteStore::new(&pool).await.expect_err("another database on every connection");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(cause(&error).contains("use a file"), "{}", cause(&error));
    assert!(SqliteStore::open(":memory:").await.is_err());
}

#[tokio::test]
async fn pool_in_another_journal_mode_is_brought_into_wal() {
    let fixture = Fixture::new();
    let options = SqliteConnectOptions::new().filename(fixture.path()).create_if_missing(true);
    // One connection: another would tell the mode in which it was opened, until it reads.
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.expect("a pool");
    let mode = async || sqlx::query_scalar::<_, String>("PRAGMA journal_mode").fetch_one(&pool).await.expect("a mode");
    assert_eq!(mode().await, "delete");
    let store = SqliteStore::new(&pool).await.expect("a store");
    assert!(is_fresh(store.claim(&claim(&key("evt_1"))).await.expect("an answer")));
    // A connection notices when it reads.
    let events = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM webhook_events").fetch_one(&pool).await;
    assert_eq!((events.expect("a number"), mode().await.as_str()), (1, "wal"));
}
