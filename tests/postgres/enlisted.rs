//! A completion inside of somebody's own transaction, by the statement that the store lends: it is committed with the rest or not
//! at all, and while it is neither it delays nobody.

use sqlx::{AssertSqlSafe, Connection, PgConnection, PgTransaction};
use tower_webhook::EventKey;
use tower_webhook::store::postgres::COMPLETE_SQL;
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Dialect, Hold, PostgresStore, Store, StoreErrorKind,
};

use crate::postgres::fixture::{Fixture, LEASE, WEEK, key, run_on, shared};

const FRESH: Claim = Claim::Fresh { attempt: Some(1) };
const IN_FLIGHT: Claim = Claim::InFlight { same_body: true };
const COMPLETED: Claim = Claim::Completed { same_body: true };

/// Runs the statement that the store lends; how many rows it changed.
async fn enlist(transaction: &mut PgTransaction<'_>, sql: &str, key: &EventKey, token: ClaimToken) -> u64 {
    let statement = sqlx::query(AssertSqlSafe(sql)).bind(key.as_str()).bind(token.as_bytes().as_slice());
    let statement = statement.bind("committed by the handler").bind(WEEK.as_millis() as i64);
    statement.execute(&mut **transaction).await.expect("a statement that works").rows_affected()
}

fn lent(store: &PostgresStore) -> String {
    let enlistment = store.enlistment().expect("a statement");
    assert_eq!(enlistment.dialect(), Dialect::Postgres);
    enlistment.sql().to_owned()
}

#[tokio::test]
async fn committed_completion_is_completed_under_its_token() {
    let fixture = Fixture::new().await;
    let (key, mut connection) = (key("evt_1"), shared().connect().await);
    let (mine, theirs) = (fixture.claim(&key, ClaimToken::random()), fixture.claim(&key, ClaimToken::random()));
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), FRESH);
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &lent(&fixture.store), &key, mine.token).await, 1);
    transaction.commit().await.expect("committed");
    // What the layer asks then: it cannot be released, and is completed.
    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(fixture.store.release(&key, mine.token).await.expect("an answer"), Hold::Lost);
    assert_eq!(fixture.store.complete(&mine, &done).await.expect("an answer"), Hold::Held);
    assert_eq!(fixture.store.claim(&theirs).await.expect("an answer"), COMPLETED);
    let kept = "SELECT count(*) FROM events WHERE summary = 'committed by the handler' AND processed_at IS NOT NULL
        AND expires_at > now() + interval '6 days'";
    assert_eq!(fixture.count(kept).await, 1);
}

#[tokio::test]
async fn rolled_back_completion_is_still_running_and_can_be_enlisted_again() {
    let fixture = Fixture::new().await;
    let (key, mut connection) = (key("evt_1"), shared().connect().await);
    let mine = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), FRESH);
    for _ in 0..2 {
        let mut transaction = connection.begin().await.expect("a transaction");
        assert_eq!(enlist(&mut transaction, &lent(&fixture.store), &key, mine.token).await, 1);
        transaction.rollback().await.expect("rolled back");
        assert_eq!(fixture.store.renew(&mine).await.expect("an answer"), Hold::Held);
    }
    assert_eq!(fixture.store.release(&key, mine.token).await.expect("an answer"), Hold::Held);
    let again = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&again).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
}

#[tokio::test]
async fn zombie_changes_no_row() {
    let fixture = Fixture::new().await;
    let (key, mut connection) = (key("evt_1"), shared().connect().await);
    let (zombie, owner) = (fixture.claim(&key, ClaimToken::random()), fixture.claim(&key, ClaimToken::random()));
    assert_eq!(fixture.store.claim(&zombie).await.expect("an answer"), FRESH);
    fixture.pass(2 * WEEK).await;
    assert_eq!(fixture.store.claim(&owner).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &lent(&fixture.store), &key, zombie.token).await, 0);
    transaction.commit().await.expect("nothing to commit");
    assert_eq!(fixture.store.renew(&owner).await.expect("an answer"), Hold::Held);
}

/// Everything here is answered while the transaction is open: whatever waited for it would never be.
#[tokio::test]
async fn open_transaction_delays_neither_other_ids_nor_the_questions_about_its_own() {
    let fixture = Fixture::new().await;
    let (held, mut connection) = (key("held"), shared().connect().await);
    let (mine, theirs) = (fixture.claim(&held, ClaimToken::random()), fixture.claim(&held, ClaimToken::random()));
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), FRESH);
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &lent(&fixture.store), &held, mine.token).await, 1);

    let done = Completion::succeeded("200 OK", WEEK);
    let about_it = async {
        assert_eq!(fixture.store.claim(&theirs).await.expect("an answer"), IN_FLIGHT);
        assert_eq!(fixture.store.renew(&mine).await.expect("an answer"), Hold::Held);
        assert_eq!(fixture.store.renew(&theirs).await.expect("an answer"), Hold::Lost);
        let released = fixture.store.release(&held, mine.token).await;
        assert_eq!(released.expect_err("locked").kind(), StoreErrorKind::Locked);
        let completed = fixture.store.complete(&mine, &done).await;
        assert_eq!(completed.expect_err("locked").kind(), StoreErrorKind::Locked);
    };
    // In the same batches as those: one thread, and all of it is asked at once.
    let about_others = async {
        for number in 0..20 {
            let other = key(&number.to_string());
            let claim = fixture.claim(&other, ClaimToken::random());
            assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), FRESH);
            assert_eq!(fixture.store.renew(&claim).await.expect("an answer"), Hold::Held);
            assert_eq!(fixture.store.complete(&claim, &done).await.expect("an answer"), Hold::Held);
        }
    };
    futures_util::future::join(about_it, about_others).await;
    transaction.commit().await.expect("committed");
    assert_eq!(fixture.store.claim(&theirs).await.expect("an answer"), COMPLETED);
}

/// The lease is not renewed once the completion is enlisted; the row's lock takes its place.
#[tokio::test]
async fn lapsed_claim_in_an_open_transaction_cannot_be_taken_over() {
    let fixture = Fixture::new().await;
    let (key, mut connection) = (key("evt_1"), shared().connect().await);
    let (mine, theirs) =
        (ClaimRequest::new(&key, ClaimToken::random(), LEASE), fixture.claim(&key, ClaimToken::random()));
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), FRESH);
    fixture.pass(2 * LEASE).await;
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, &lent(&fixture.store), &key, mine.token).await, 1);
    assert_eq!(fixture.store.claim(&theirs).await.expect("an answer"), IN_FLIGHT);
    transaction.rollback().await.expect("rolled back");
    assert_eq!(fixture.store.claim(&theirs).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
}

/// A row of the effect that refers to the event's: its key is locked then, which must not be in the way.
#[tokio::test]
async fn event_that_an_open_transaction_refers_to_can_be_settled() {
    let fixture = Fixture::new().await;
    let (key, mut connection) = (key("evt_1"), shared().connect().await);
    let mine = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&mine).await.expect("an answer"), FRESH);
    let effects = fixture.about("CREATE TABLE events_effects (event text COLLATE \"C\" REFERENCES events (key))");
    run_on(&mut connection, effects).await;
    let refer = fixture.about(&format!("BEGIN; INSERT INTO events_effects VALUES ('{}')", key.as_str()));
    run_on(&mut connection, refer).await;
    assert_eq!(fixture.store.renew(&mine).await.expect("an answer"), Hold::Held);
    let done = Completion::succeeded("200 OK", WEEK);
    assert_eq!(fixture.store.complete(&mine, &done).await.expect("an answer"), Hold::Held);
}

#[tokio::test]
async fn public_statement_is_the_one_for_the_default_table() {
    let store = PostgresStore::new(shared().pool());
    store.migrate().await.expect("a table");
    let (key, mut connection): (_, PgConnection) = (key("evt_default"), shared().connect().await);
    let mine = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
    assert_eq!(store.claim(&mine).await.expect("an answer"), FRESH);
    let mut transaction = connection.begin().await.expect("a transaction");
    assert_eq!(enlist(&mut transaction, COMPLETE_SQL, &key, mine.token).await, 1);
    transaction.commit().await.expect("committed");
    assert_eq!(store.claim(&mine).await.expect("an answer"), COMPLETED);
}
