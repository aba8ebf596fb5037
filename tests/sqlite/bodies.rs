//! Completed events whose bodies go before their records.

use std::sync::Mutex;
use std::time::Duration;

use sqlx::AssertSqlSafe;
use tower_webhook::queue::{Changed, EventState, Filter, Queue};
use tower_webhook::store::{Claim, Hold, SqliteStore, Store};
use tower_webhook::testing::ManualClock;
use tower_webhook::testing::conformance::{self, Harness};

use crate::sqlite::fixture::{DAY, Fixture, LEASE, claim, key, write_lock};
use crate::sqlite::queue::{NOW, accept, complete, complete_in, count, lease_one, stored_request};

const MINUTE: Duration = Duration::from_secs(60);

async fn keeping(fixture: &Fixture, clock: &ManualClock, kept: Duration) -> SqliteStore {
    let builder = SqliteStore::builder().clock(clock.clone()).keep_completed_bodies(kept);
    builder.open(fixture.path()).await.expect("a store")
}

struct Keeping {
    clock: ManualClock,
    kept: Duration,
    fixtures: Mutex<Vec<Fixture>>,
}

impl Harness for Keeping {
    type Store = SqliteStore;

    async fn store(&self) -> SqliteStore {
        let fixture = Fixture::new();
        let store = keeping(&fixture, &self.clock, self.kept).await;
        self.fixtures.lock().expect("no panic").push(fixture);
        store
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }
}

#[tokio::test]
async fn inbox_without_completed_bodies_conforms() {
    for kept in [MINUTE, Duration::ZERO] {
        let harness = Keeping { clock: ManualClock::at_unix(NOW), kept, fixtures: Mutex::default() };
        conformance::completed_bodies(kept).run(&harness).await;
    }
}

#[tokio::test]
async fn bodies_are_deleted_by_the_purge_and_records_stay() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let (store, pool) = (keeping(&fixture, &clock, MINUTE).await, fixture.pool().await);
    for n in 0..600 {
        accept(&store, &n.to_string()).await;
        complete(&store, &lease_one(&store).await, DAY).await;
    }
    accept(&store, "waiting").await;
    assert_eq!(store.purge().await.expect("a purge"), 0);
    assert_eq!(count(&pool, "webhook_events_parcels").await, 601, "not yet");
    clock.advance(MINUTE);
    assert_eq!(store.purge().await.expect("a purge"), 0, "no record has expired");
    assert_eq!(count(&pool, "webhook_events_parcels").await, 1);
    assert_eq!(count(&pool, "webhook_events").await, 601);
    let duplicate = store.claim(&claim(&key("7"))).await.expect("an answer");
    assert_eq!(duplicate, Claim::Completed { same_body: true });
    let requeued = store.requeue(&Filter::all(), true).await.expect("an answer");
    assert_eq!(requeued, Changed::new(0).without_body(600));
}

#[tokio::test]
async fn traffic_deletes_bodies() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let (store, pool) = (keeping(&fixture, &clock, MINUTE).await, fixture.pool().await);
    for n in 0..20 {
        accept(&store, &n.to_string()).await;
        complete(&store, &lease_one(&store).await, DAY).await;
    }
    clock.advance(MINUTE);
    accept(&store, "another").await;
    assert_eq!(count(&pool, "webhook_events_parcels").await, 1, "its own");
}

/// By the statement that a handler's transaction runs, without a purge.
#[tokio::test]
async fn bodies_that_are_not_kept_go_with_the_completion() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let (store, pool) = (keeping(&fixture, &clock, Duration::ZERO).await, fixture.pool().await);
    let bodies = async || count(&pool, "webhook_events_parcels").await;

    accept(&store, "by the store").await;
    complete(&store, &lease_one(&store).await, DAY).await;
    assert_eq!(bodies().await, 0);

    let event = accept(&store, "in a transaction").await;
    let leased = lease_one(&store).await;
    let statement = store.enlistment().expect("a statement").sql().to_owned();
    for commits in [false, true] {
        let mut transaction = write_lock(&pool).await;
        let completed = sqlx::query(AssertSqlSafe(statement.clone()))
            .bind(leased.key.as_str())
            .bind(&leased.token.as_bytes()[..])
            .bind("200 OK")
            .bind(1_000_000_i64);
        assert_eq!(completed.execute(&mut *transaction).await.expect("a change").rows_affected(), 1);
        match commits {
            true => transaction.commit().await.expect("a commit"),
            false => transaction.rollback().await.expect("a rollback"),
        }
        assert_eq!(bodies().await, i64::from(!commits));
    }
    let kept = store.get(&event).await.expect("an answer").expect("the record");
    assert_eq!((kept.state, kept.request), (EventState::Completed, None));

    accept(&store, "discarded").await;
    assert_eq!(store.discard(&Filter::one(key("discarded")), DAY).await.expect("an answer"), 1);
    assert_eq!(bodies().await, 0);

    accept(&store, "dead").await;
    let dead = lease_one(&store).await;
    assert_eq!(store.bury(&dead.claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
    assert_eq!(bodies().await, 1, "somebody may want to run it again");
}

/// The public statement knows nothing of it. Nobody is shown the body all the same, and the purge takes it.
#[tokio::test]
async fn body_of_an_event_that_another_driver_completed_goes_with_the_purge() {
    let fixture = Fixture::new();
    let store =
        SqliteStore::builder().keep_completed_bodies(Duration::ZERO).open(fixture.path()).await.expect("a store");
    let pool = fixture.pool().await;
    let event = accept(&store, "evt_1").await;
    let leased = lease_one(&store).await;
    let mut transaction = write_lock(&pool).await;
    complete_in(&mut transaction, &leased).await;
    transaction.commit().await.expect("a commit");
    // The database's clock has no more than milliseconds.
    crate::sqlite::fixture::eventually("its time is over", async || {
        store.get(&event).await.expect("an answer").expect("the record").request.is_none()
    })
    .await;
    assert_eq!(store.requeue(&Filter::all(), true).await.expect("an answer"), Changed::new(0).without_body(1));
    assert_eq!(store.purge().await.expect("a purge"), 0);
    assert_eq!(count(&pool, "webhook_events_parcels").await, 0);
}

/// What was kept under another setting.
#[tokio::test]
async fn shorter_time_holds_for_events_that_were_completed_before() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let store = crate::sqlite::queue::at(&fixture, &clock).await;
    let event = accept(&store, "evt_1").await;
    complete(&store, &lease_one(&store).await, DAY).await;
    clock.advance(MINUTE);
    let body = async |store: &SqliteStore| store.get(&event).await.expect("an answer").expect("the record").request;
    assert_eq!(body(&keeping(&fixture, &clock, 2 * MINUTE).await).await, Some(stored_request("evt_1")));
    assert_eq!(body(&keeping(&fixture, &clock, MINUTE).await).await, None);
    assert_eq!(body(&store).await, Some(stored_request("evt_1")), "nothing has purged it");
}
