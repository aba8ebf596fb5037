//! Bodies of completed events that are kept for a shorter time than the events; and the release before, which knows nothing of it.

use std::time::Duration;

use sqlx::AssertSqlSafe;
use tower_webhook::queue::{EventState, Filter, Queue};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Hold, PostgresStore, Store};

use super::queue::{KEPT, accept, complete, lease_one, stored_request};
use crate::postgres::fixture::{Fixture, LEASE, WEEK, key, patient};

const MINUTE: Duration = Duration::from_secs(60);

fn keeping(fixture: &Fixture, time: Duration) -> PostgresStore {
    patient(&fixture.pool, &fixture.table).keep_completed_bodies(time).build()
}

const BODIES: &str = "SELECT count(*) FROM events WHERE head IS NOT NULL OR body IS NOT NULL";

#[tokio::test]
async fn purge_removes_what_is_kept_no_longer_and_counts_no_event() {
    let fixture = Fixture::new().await;
    let store = keeping(&fixture, MINUTE);
    for id in ["done", "dead", "discarded"] {
        assert_eq!(accept(&store, &key(id)).await, KEPT);
        match id {
            "done" => complete(&store, &lease_one(&store).await).await,
            "dead" => _ = store.bury(&lease_one(&store).await.claim(LEASE), "hopeless").await.expect("buried"),
            _ => assert_eq!(store.discard(&Filter::one(key(id)), WEEK).await.expect("discarded"), 1),
        }
    }
    assert_eq!(store.purge().await.expect("purged"), 0);
    assert_eq!(fixture.count(BODIES).await, 3, "not yet");
    fixture.pass(2 * MINUTE).await;
    // Whoever else asks is told the same, however that store is built.
    assert_eq!(fixture.store.get(&key("done")).await.expect("an answer").expect("a record").request, None);
    assert_eq!(store.purge().await.expect("purged"), 0);
    assert_eq!(fixture.count(BODIES).await, 1, "that of the dead letter");
    assert!(store.get(&key("dead")).await.expect("an answer").expect("the dead letter").request.is_some());
    let again = store.requeue(&Filter::all(), true).await.expect("an answer");
    assert_eq!((again.events, again.without_body), (1, 2));
    assert_eq!(accept(&store, &key("done")).await, Claim::Completed { same_body: true });
}

/// A handler's own transaction takes the body with it, or does not.
#[tokio::test]
async fn enlisted_completion_removes_the_body_when_it_is_committed() {
    let fixture = Fixture::new().await;
    let store = keeping(&fixture, Duration::ZERO);
    assert_eq!(accept(&store, &key("evt_1")).await, KEPT);
    let leased = lease_one(&store).await;
    let sql = store.enlistment().expect("a statement").sql().to_owned();
    for commit in [false, true] {
        let mut transaction = fixture.pool.begin().await.expect("a transaction");
        let statement =
            sqlx::query(AssertSqlSafe(&*sql)).bind(leased.key.as_str()).bind(leased.token.as_bytes().as_slice());
        let statement = statement.bind("committed").bind(WEEK.as_millis() as i64);
        assert_eq!(statement.execute(&mut *transaction).await.expect("a statement that works").rows_affected(), 1);
        match commit {
            true => transaction.commit().await.expect("committed"),
            false => transaction.rollback().await.expect("rolled back"),
        }
        assert_eq!(fixture.count(BODIES).await, i64::from(!commit));
    }
    let kept = store.get(&leased.key).await.expect("an answer").expect("a record");
    assert_eq!((kept.state, kept.request), (EventState::Completed, None));
}

#[tokio::test]
async fn enlisted_completion_says_until_when_the_body_is_kept() {
    let fixture = Fixture::new().await;
    let store = keeping(&fixture, MINUTE);
    let inline = fixture.claim_inline(&store, "inline").await;
    assert_eq!(accept(&store, &key("evt_1")).await, KEPT);
    let leased = lease_one(&store).await;
    let sql = store.enlistment().expect("a statement").sql().to_owned();
    for (key, token) in [(&leased.key, leased.token), (&inline.0, inline.1)] {
        let statement = sqlx::query(AssertSqlSafe(&*sql)).bind(key.as_str()).bind(token.as_bytes().as_slice());
        let statement = statement.bind("committed").bind(WEEK.as_millis() as i64);
        assert_eq!(statement.execute(&fixture.pool).await.expect("a statement that works").rows_affected(), 1);
    }
    let until = "SELECT count(*) FROM events WHERE body_until BETWEEN now() AND now() + interval '1 minute'";
    assert_eq!((fixture.count(BODIES).await, fixture.count(until).await), (1, 1));
    fixture.pass(2 * MINUTE).await;
    assert_eq!(store.get(&leased.key).await.expect("an answer").expect("a record").request, None);
}

impl Fixture {
    /// A claim that an inline receiver holds.
    async fn claim_inline(&self, store: &PostgresStore, id: &str) -> (tower_webhook::EventKey, ClaimToken) {
        let (key, token) = (key(id), ClaimToken::random());
        let claimed = store.claim(&ClaimRequest::new(&key, token, WEEK)).await.expect("an answer");
        assert!(matches!(claimed, Claim::Fresh { .. }), "{claimed:?}");
        (key, token)
    }
}

/// During a deploy the release before leases, puts back, requeues and accepts anew, and leaves columns as they were that it does not
/// know.
#[tokio::test]
async fn columns_that_the_release_before_left_behind_do_no_harm() {
    let fixture = Fixture::new().await;
    let store = keeping(&fixture, MINUTE);
    // Leased by the release before, which does not say when the event was due.
    assert_eq!(accept(&store, &key("a")).await, KEPT);
    let leased = lease_one(&store).await;
    fixture.run("UPDATE events SET was_due_at = NULL").await;
    assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    // Changed by it, after its handler was started: that was in another life.
    let leased = lease_one(&store).await;
    assert_eq!(store.start(&leased.claim(LEASE)).await.expect("an answer"), Hold::Held);
    fixture.run(
        "UPDATE events SET state = 'accepted', token = uuid_send(gen_random_uuid()), arrival = nextval('events_arrivals'),
                lease_until = now(), due_at = now(), attempts = 0",
    )
    .await;
    let leased = lease_one(&store).await;
    assert!(!leased.started);
    // Completed by this release and, once it had expired, accepted anew by the one before: its body is a new one.
    complete(&store, &leased).await;
    fixture.run(
        "UPDATE events SET state = 'accepted', arrival = nextval('events_arrivals'), due_at = now(), attempts = 0, expires_at = NULL,
                processed_at = NULL, body_until = now() - interval '1 minute'",
    )
    .await;
    assert_eq!(store.purge().await.expect("purged"), 0);
    let kept = store.get(&key("a")).await.expect("an answer").expect("an event");
    assert_eq!(kept.request, Some(stored_request(&key("a"))));
    assert_eq!(lease_one(&store).await.request, stored_request(&key("a")));
}
