//! What is in the table.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row};
use tower_webhook::ConfigErrorKind;
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold, SqliteStore, Store, StoreErrorKind,
};
use tower_webhook::testing::ManualClock;

use crate::sqlite::fixture::{DAY, Fixture, LEASE, claim, done, is_fresh, key};

const NOW: u64 = 1_700_000_000;

#[tokio::test]
async fn row_records_what_happens_to_its_event() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let store = SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store");
    let (pool, key) = (fixture.pool().await, key("evt_1"));
    let fingerprint = Fingerprint::from_u64(u64::MAX - 1);
    let request =
        |token| ClaimRequest::new(&key, token, LEASE).fingerprint(fingerprint).event_type(Some("invoice.paid"));
    let read = async || sqlx::query("SELECT * FROM webhook_events").fetch_one(&pool).await.expect("the row");

    let first = ClaimToken::random();
    assert_eq!(store.claim(&request(first)).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
    let row = read().await;
    assert_eq!(row.get::<&str, _>("key"), key.as_str());
    assert_eq!((row.get::<&str, _>("state"), row.get::<&str, _>("event_type")), ("running", "invoice.paid"));
    assert_eq!(row.get::<&[u8], _>("token"), first.as_bytes());
    assert_eq!(row.get::<i64, _>("fingerprint"), -2, "all 64 bits");
    assert_eq!(row.get::<i64, _>("received_at"), NOW as i64 * 1000);

    clock.advance(Duration::from_secs(1));
    assert_eq!(store.release(&key, first).await.expect("an answer"), Hold::Held);
    assert_eq!(read().await.get::<&str, _>("state"), "released");
    assert_eq!(store.release(&key, first).await.expect("an answer"), Hold::Held, "a lost reply, asked again");

    clock.advance(Duration::from_secs(1));
    let second = ClaimToken::random();
    assert_eq!(store.claim(&request(second)).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
    let failed = Completion::failed("no such account: \0 \"☃\"", DAY);
    assert_eq!(store.complete(&request(second), &failed).await.expect("an answer"), Hold::Held);
    let row = read().await;
    assert_eq!((row.get::<&str, _>("state"), row.get::<i64, _>("attempts")), ("failed", 2));
    assert_eq!(row.get::<&str, _>("summary"), "no such account: \0 \"☃\"");
    let at = |seconds: u64| (NOW + seconds) as i64 * 1000;
    assert_eq!(row.get::<i64, _>("received_at"), at(0), "the first claim");
    assert_eq!(row.get::<i64, _>("processed_at"), at(2));
    assert_eq!(row.get::<i64, _>("expires_at"), at(2 + DAY.as_secs()));
}

#[tokio::test]
async fn released_event_is_forgotten_after_a_day() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let store = SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store");
    let key = key("evt_1");
    let first = claim(&key);
    store.claim(&first).await.expect("an answer");
    assert_eq!(store.release(&key, first.token).await.expect("an answer"), Hold::Held);
    clock.advance(DAY);
    assert_eq!(store.claim(&claim(&key)).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
}

#[tokio::test]
async fn purge_takes_what_has_expired_and_leaves_what_lives() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let store = SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store");
    let pool = fixture.pool().await;
    let brief = Completion::succeeded("200 OK", Duration::from_secs(60));
    for n in 0..600 {
        let (key, completion) = (key(&n.to_string()), if n % 6 == 0 { done() } else { brief });
        let claim = ClaimRequest::new(&key, ClaimToken::random(), 30 * DAY);
        store.claim(&claim).await.expect("an answer");
        match n % 3 {
            0 | 1 => assert_eq!(store.complete(&claim, &completion).await.expect("an answer"), Hold::Held),
            _ => {}
        }
    }
    assert_eq!(store.purge().await.expect("a purge"), 0, "nothing has expired yet");
    clock.advance(Duration::from_secs(60));
    assert_eq!(store.purge().await.expect("a purge"), 300);
    let states = "SELECT count(*) FROM webhook_events WHERE state = ?";
    let count =
        async |state: &str| sqlx::query_scalar::<_, i64>(states).bind(state).fetch_one(&pool).await.expect("a number");
    assert_eq!((count("completed").await, count("running").await), (100, 200));

    // The wall clock says that the claims are long over, the clock of leases that they are not.
    clock.set_wall(std::time::UNIX_EPOCH + Duration::from_secs(NOW) + 365 * DAY);
    assert_eq!(store.purge().await.expect("a purge"), 100);
    assert_eq!(count("running").await, 200, "a live claim is never purged");
    clock.advance(31 * DAY);
    assert_eq!(store.purge().await.expect("a purge"), 200, "a claim that nobody came back for is");
}

#[tokio::test]
async fn traffic_purges() {
    let (fixture, clock) = (Fixture::new(), ManualClock::at_unix(NOW));
    let store = SqliteStore::builder().clock(clock.clone()).open(fixture.path()).await.expect("a store");
    let pool = fixture.pool().await;
    for n in 0..600 {
        let key = key(&n.to_string());
        let claim = claim(&key);
        store.claim(&claim).await.expect("an answer");
        let brief = Completion::succeeded("200 OK", Duration::from_secs(60));
        assert_eq!(store.complete(&claim, &brief).await.expect("an answer"), Hold::Held);
    }
    clock.advance(Duration::from_secs(60));
    for n in 0..3 {
        assert!(is_fresh(store.claim(&claim(&key(&format!("later_{n}")))).await.expect("an answer")));
    }
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM webhook_events").fetch_one(&pool).await.expect("a number");
    assert_eq!(left, 3, "a few hundred with every batch");
}

#[tokio::test]
async fn odd_table_names_are_quoted() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    for name in ["select", "two words", "x\"; DROP TABLE y; --", "Événements", "a'b", "1", "%s"] {
        let store = SqliteStore::builder().table(name).expect("a name").open(fixture.path()).await.expect("a store");
        let (key, other) = (key("evt_1"), key("evt_2"));
        let (mine, enlisted) = (claim(&key), claim(&other));
        for claim in [&mine, &enlisted] {
            assert!(is_fresh(store.claim(claim).await.expect("an answer")), "{name}");
        }
        assert_eq!(store.complete(&mine, &done()).await.expect("an answer"), Hold::Held);
        let sql = store.enlistment().expect("a statement").sql().to_owned();
        let changed = sqlx::query(AssertSqlSafe(sql)).bind(other.as_str()).bind(&enlisted.token.as_bytes()[..]);
        assert_eq!(changed.bind("").bind(1_000_000_i64).execute(&pool).await.expect("a change").rows_affected(), 1);
        assert_eq!(store.purge().await.expect("a purge"), 0);
        let table = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?";
        let tables: i64 = sqlx::query_scalar(table).bind(name).fetch_one(&pool).await.expect("a number");
        assert_eq!(tables, 1, "{name}");
    }
    let error = SqliteStore::builder().table("app.events").expect_err("no schemas here");
    assert_eq!(error.kind(), ConfigErrorKind::Name);
}

#[tokio::test]
async fn printed_schema_is_all_that_the_store_needs() {
    let printed = {
        let fixture = Fixture::new();
        fixture.store().await.schema_sql().to_owned()
    };
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    sqlx::raw_sql(AssertSqlSafe(printed)).execute(&pool).await.expect("a migration");
    let before: i64 = sqlx::query_scalar("PRAGMA schema_version").fetch_one(&pool).await.expect("a version");
    let store = SqliteStore::new(&pool).await.expect("a store");
    assert!(is_fresh(store.claim(&claim(&key("evt_1"))).await.expect("an answer")));
    let after: i64 = sqlx::query_scalar("PRAGMA schema_version").fetch_one(&pool).await.expect("a version");
    assert_eq!(before, after, "nothing was created");
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_row_fails_alone() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let keys: Vec<_> = (0..32).map(|n| key(&n.to_string())).collect();
    for key in &keys {
        store.claim(&claim(key)).await.expect("an answer");
    }
    sqlx::query("UPDATE webhook_events SET state = 'on holiday' WHERE key = ?")
        .bind(keys[7].as_str())
        .execute(&pool)
        .await
        .expect("an operator's mistake");
    let claims = keys.iter().map(|key| {
        let (store, key) = (store.clone(), key.clone());
        tokio::spawn(async move { store.claim(&claim(&key)).await })
    });
    for (n, answer) in futures_util::future::join_all(claims.collect::<Vec<_>>()).await.into_iter().enumerate() {
        match (n, answer.expect("no panic")) {
            (7, answer) => assert_eq!(answer.expect_err("unreadable").kind(), StoreErrorKind::Corrupt),
            (_, answer) => assert_eq!(answer.expect("an answer"), Claim::InFlight { same_body: true }),
        }
    }
}
