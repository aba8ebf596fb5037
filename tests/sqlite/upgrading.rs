//! Files that earlier releases have made.

use sqlx::sqlite::SqlitePool;
use tower_webhook::queue::{EventState, Filter, Page, Queue};
use tower_webhook::store::{Claim, Hold, SqliteStore, Store};
use tower_webhook::{EventKey, Worker};

use crate::sqlite::fixture::{Fixture, LEASE, claim, is_fresh, key};
use crate::sqlite::queue::{accept, lease, lease_one};

const FIRST_SCHEMA: &str = include_str!("../data/sqlite_schema_0_1.sql");

/// Events in every state, as the first releases wrote them.
const EVENTS: &str = "
    INSERT INTO webhook_events_parcels (id, head, body) VALUES (1, x'', x'01'), (2, x'', x'02'), (3, x'', x'03'), (4, x'', x'04');
    INSERT INTO webhook_events (key, event_type, state, token, boot, lease_until, received_at, processed_at, attempts, summary,
        fingerprint, expires_at, version, arrival, parcel, endpoint, due_at, started_at, failures) VALUES
    ('9.0:/webhooks//waiting', 'x', 'accepted', randomblob(16), 'old', NULL, 1700000000000, NULL, 0, NULL,
        0, 9223372036854775807, 5, 1, 1, '/webhooks', 100, NULL, NULL),
    ('9.0:/webhooks//leased', 'x', 'running', randomblob(16), 'old', 200, 1700000000000, NULL, 1, NULL,
        0, 9223372036854775807, 5, 2, 2, '/webhooks', NULL, 1700000000000, NULL),
    ('9.0:/webhooks//done', NULL, 'completed', randomblob(16), 'old', NULL, 1700000000000, 1700000001000, 1, '200 OK',
        0, 9000000000000, 5, 3, 3, '/webhooks', NULL, 1700000000000, NULL),
    ('9.0:/webhooks//dead', NULL, 'failed', randomblob(16), 'old', NULL, 1700000000000, 1700000001000, 1, 'hopeless',
        0, 9223372036854775807, 5, 4, 4, '/webhooks', NULL, 1700000000000, '1700000000000 1700000001000 hopeless' || char(10)),
    ('9.0:/webhooks//inline', NULL, 'completed', randomblob(16), 'old', NULL, 1700000000000, 1700000001000, 1, '200 OK',
        0, 9000000000000, 5, NULL, NULL, NULL, NULL, NULL, NULL),
    ('9.0:/webhooks//claimed', NULL, 'running', randomblob(16), 'old', 200, 1700000000000, NULL, 1, NULL,
        0, 9000000000000, 5, NULL, NULL, NULL, NULL, NULL, NULL)";

async fn old_file(fixture: &Fixture) -> SqlitePool {
    let pool = fixture.pool().await;
    sqlx::raw_sql("PRAGMA journal_mode = WAL; PRAGMA user_version = 7").execute(&pool).await.expect("an application");
    sqlx::raw_sql(FIRST_SCHEMA).execute(&pool).await.expect("the tables of then");
    sqlx::raw_sql(EVENTS).execute(&pool).await.expect("events");
    pool
}

#[tokio::test]
async fn file_of_an_earlier_release_is_brought_up_to_date_and_goes_on() {
    let fixture = Fixture::new();
    let pool = old_file(&fixture).await;
    let store = SqliteStore::builder().keep_completed_bodies(LEASE).open(fixture.path()).await.expect("a store");
    let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&pool).await.expect("a number");
    assert_eq!(version, 7, "the application's own");
    assert_eq!(store.list(&Filter::all(), &Page::first(9)).await.expect("an answer").len(), 4);
    for (id, expected) in [
        ("waiting", Claim::Accepted { same_body: true }),
        ("leased", Claim::Accepted { same_body: true }),
        ("done", Claim::Completed { same_body: true }),
        ("dead", Claim::Completed { same_body: true }),
        ("inline", Claim::Completed { same_body: true }),
        ("claimed", Claim::Fresh { attempt: Some(2) }),
    ] {
        assert_eq!(store.claim(&claim(&key(id))).await.expect("an answer"), expected, "{id}");
    }
    let leased = lease(&store, 9).await;
    let ids: Vec<_> = leased.iter().map(|leased| (leased.key.id(), leased.attempt, leased.started)).collect();
    assert_eq!(ids, [("waiting", 1, false), ("leased", 2, false)]);
    assert_eq!(store.start(&leased[1].claim(LEASE)).await.expect("an answer"), Hold::Held);
    let started = "SELECT handler_started FROM webhook_events WHERE key LIKE '%/leased'";
    assert_eq!(sqlx::query_scalar::<_, Option<bool>>(started).fetch_one(&pool).await.expect("a row"), Some(true));
    assert_eq!(store.release(&leased[1].key, leased[1].token).await.expect("an answer"), Hold::Held);
    assert!(!lease_one(&store).await.started, "a release takes the note of the start back");
    let requeued = store.requeue(&Filter::all(), true).await.expect("an answer");
    assert_eq!((requeued.events, requeued.without_body), (1, 1), "completed years ago");
    assert_eq!(store.purge().await.expect("a purge"), 0);
    assert_eq!(store.get(&key("done")).await.expect("an answer").expect("the record").request, None);
    let bodies = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM webhook_events_parcels").fetch_one(&pool).await;
    assert_eq!(bodies.expect("a number"), 3);
    accept(&store, "new").await;
    assert_eq!(lease(&store, 9).await.len(), 2);
}

/// Two processes of the new release, and one of the old.
#[tokio::test(flavor = "multi_thread")]
async fn many_stores_bring_one_file_up_to_date_at_once() {
    let fixture = Fixture::new();
    let pool = old_file(&fixture).await;
    let opening = (0..8).map(|_| {
        let path = fixture.path();
        tokio::spawn(async move {
            let builder = SqliteStore::builder().lock_wait(crate::sqlite::fixture::PATIENCE);
            builder.open(path).await.expect("a store")
        })
    });
    for store in futures_util::future::join_all(opening.collect::<Vec<_>>()).await {
        assert!(store.expect("no panic").waiting(9).await.expect("an answer") > 0);
    }
    // As the release before inserts it.
    let inserted = "INSERT INTO webhook_events_parcels (id, head, body) VALUES (9, x'', x''); \
        INSERT INTO webhook_events (key, state, token, boot, received_at, attempts, fingerprint, expires_at, version, arrival, parcel, \
        endpoint, due_at) VALUES ('9.0:/webhooks//theirs', 'accepted', randomblob(16), 'old', 0, 0, 0, 9223372036854775807, 1, 9, 9, \
        '/webhooks', 5)";
    sqlx::raw_sql(inserted).execute(&pool).await.expect("an event of theirs");
    let store = fixture.store().await;
    let ids: Vec<_> = lease(&store, 9).await.into_iter().map(|leased| leased.key.id().to_owned()).collect();
    assert!(ids.contains(&"theirs".to_owned()), "{ids:?}");
}

/// The release before keeps the due time of a running event in `due_at`.
#[tokio::test]
async fn event_that_an_earlier_release_has_leased_is_released_to_when_it_was_due() {
    let fixture = Fixture::new();
    let pool = old_file(&fixture).await;
    let store = fixture.store().await;
    accept(&store, "new").await;
    let lapsed = "UPDATE webhook_events SET due_at = 5, lease_until = 10,
        boot = (SELECT boot FROM webhook_events WHERE key LIKE '%/new') WHERE key LIKE '%/leased'";
    assert_eq!(sqlx::query(lapsed).execute(&pool).await.expect("a change").rows_affected(), 1);
    let leased = lease(&store, 9).await;
    let leased = leased.iter().find(|leased| leased.key.id() == "leased").expect("the lapsed one");
    assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    let times = "SELECT due_at, was_due_at FROM webhook_events WHERE key LIKE '%/leased'";
    let times = sqlx::query_as::<_, (Option<i64>, Option<i64>)>(times).fetch_one(&pool).await;
    assert_eq!(times.expect("the row"), (Some(5), None));
}

/// Heads that no layer wrote, so that only the states are of interest.
#[tokio::test]
async fn worker_drains_a_file_of_an_earlier_release() {
    let fixture = Fixture::new();
    old_file(&fixture).await;
    let store = fixture.store().await;
    let worker = Worker::new(store.clone(), axum::Router::new());
    assert_eq!(worker.run_until_idle().await, 2);
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.waiting, counts.running, counts.completed, counts.dead), (0, 0, 1, 3));
    for id in ["waiting", "leased"] {
        let kept = store.get(&EventKey::new("/webhooks", None, id)).await.expect("an answer").expect("the event");
        assert_eq!(kept.state, EventState::Dead, "its head is empty");
    }
    assert!(is_fresh(store.claim(&claim(&key("new"))).await.expect("an answer")));
}
