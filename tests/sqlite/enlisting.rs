//! The statement that completes a claim inside of a handler's own transaction.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection, Transaction};
use tower_webhook::store::sqlite::COMPLETE_SQL;
use tower_webhook::store::{Claim, ClaimRequest, Dialect, Hold, SqliteStore, Store, StoreErrorKind};

use crate::sqlite::fixture::{DAY, Fixture, LEASE, claim, is_fresh, key, write_lock};

async fn complete_in(connection: &mut SqliteConnection, store: &SqliteStore, claim: &ClaimRequest<'_>) -> u64 {
    let lent = store.enlistment().expect("a statement");
    assert_eq!(lent.dialect(), Dialect::Sqlite);
    sqlx::query(AssertSqlSafe(lent.sql().to_owned()))
        .bind(claim.key.as_str())
        .bind(&claim.token.as_bytes()[..])
        .bind("200 OK")
        .bind(DAY.as_millis() as i64)
        .execute(connection)
        .await
        .expect("a change")
        .rows_affected()
}

async fn effect(transaction: &mut Transaction<'_, Sqlite>) {
    sqlx::query("INSERT INTO effects VALUES (1)").execute(&mut **transaction).await.expect("an effect");
}

#[tokio::test(flavor = "multi_thread")]
async fn effect_and_completion_are_committed_together_or_not_at_all() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    sqlx::query("CREATE TABLE effects (n INTEGER)").execute(&pool).await.expect("a table");
    let effects =
        async || sqlx::query_scalar::<_, i64>("SELECT count(*) FROM effects").fetch_one(&pool).await.expect("a number");
    let store = SqliteStore::builder().lock_wait(Duration::from_millis(100)).build(&pool).await.expect("a store");
    let key = key("evt_1");
    let mine = claim(&key);
    assert!(is_fresh(store.claim(&mine).await.expect("an answer")));

    let mut transaction = write_lock(&pool).await;
    assert_eq!(complete_in(&mut transaction, &store, &mine).await, 1);
    effect(&mut transaction).await;
    assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), Claim::InFlight { same_body: true }, "not yet");
    assert_eq!(store.release(&key, mine.token).await.expect_err("not ended").kind(), StoreErrorKind::Locked);
    transaction.rollback().await.expect("a rollback");
    assert_eq!(effects().await, 0);
    assert_eq!(store.renew(&mine).await.expect("an answer"), Hold::Held, "still running");

    let mut transaction = write_lock(&pool).await;
    assert_eq!(complete_in(&mut transaction, &store, &mine).await, 1);
    effect(&mut transaction).await;
    transaction.commit().await.expect("a commit");
    assert_eq!(effects().await, 1);
    assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), Claim::Completed { same_body: true });
    assert_eq!(store.release(&key, mine.token).await.expect("an answer"), Hold::Lost);
    let again = tower_webhook::store::Completion::succeeded("", DAY);
    assert_eq!(store.complete(&mine, &again).await.expect("an answer"), Hold::Held, "by this very token");
    assert_eq!(store.complete(&claim(&key), &again).await.expect("an answer"), Hold::Lost);
}

#[tokio::test]
async fn zombie_changes_nothing() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::new(&pool).await.expect("a store");
    let key = key("evt_1");
    let (zombie, owner) = (claim(&key), claim(&key));
    assert!(is_fresh(store.claim(&zombie).await.expect("an answer")));
    sqlx::query("UPDATE webhook_events SET lease_until = lease_until - ?")
        .bind(2 * LEASE.as_millis() as i64)
        .execute(&pool)
        .await
        .expect("two leases pass");
    assert!(is_fresh(store.claim(&owner).await.expect("an answer")));
    let mut transaction = write_lock(&pool).await;
    assert_eq!(complete_in(&mut transaction, &store, &zombie).await, 0);
    assert_eq!(complete_in(&mut transaction, &store, &owner).await, 1);
    assert_eq!(complete_in(&mut transaction, &store, &owner).await, 0, "it is completed already");
    transaction.commit().await.expect("a commit");
}

/// A batch may have read the claim as running just before the handler's commit.
#[tokio::test(flavor = "multi_thread")]
async fn release_races_the_commit_and_one_of_them_wins() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::new(&pool).await.expect("a store");
    for n in 0..200 {
        let key = key(&n.to_string());
        let mine = claim(&key);
        assert!(is_fresh(store.claim(&mine).await.expect("an answer")));
        let mut transaction = write_lock(&pool).await;
        assert_eq!(complete_in(&mut transaction, &store, &mine).await, 1);
        let releasing = {
            let (store, key, token) = (store.clone(), key.clone(), mine.token);
            tokio::spawn(async move { store.release(&key, token).await })
        };
        if n % 2 == 0 {
            tokio::task::yield_now().await;
        }
        transaction.commit().await.expect("a commit");
        // The completion has held the lock since before the release was asked.
        assert_eq!(releasing.await.expect("no panic").expect("an answer"), Hold::Lost);
        assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), Claim::Completed { same_body: true });
    }
}

#[tokio::test]
async fn public_statement_is_the_default_tables() {
    let fixture = Fixture::new();
    assert_eq!(fixture.store().await.enlistment().expect("a statement").sql(), COMPLETE_SQL);
}

#[tokio::test]
async fn enlisted_record_expires_on_the_databases_clock() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let store = SqliteStore::new(&pool).await.expect("a store");
    let key = key("evt_1");
    let mine = claim(&key);
    assert!(is_fresh(store.claim(&mine).await.expect("an answer")));
    let mut transaction = write_lock(&pool).await;
    assert_eq!(complete_in(&mut transaction, &store, &mine).await, 1);
    transaction.commit().await.expect("a commit");
    let row = "SELECT processed_at, expires_at - processed_at, summary FROM webhook_events";
    let (at, kept, summary): (i64, i64, String) = sqlx::query_as(row).fetch_one(&pool).await.expect("the row");
    let now = std::time::UNIX_EPOCH.elapsed().expect("after the epoch").as_millis() as i64;
    assert!((now - at).abs() < 60_000, "{at} is not {now}");
    assert_eq!((kept, summary.as_str()), (DAY.as_millis() as i64, "200 OK"));
}
