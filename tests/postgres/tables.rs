//! The table: how it comes into being, what it may be called, and what is written into it.

use std::error::Error;
use std::time::Duration;

use futures_util::future::join_all;
use sqlx::{AssertSqlSafe, Row};
use tower_webhook::ConfigErrorKind;
use tower_webhook::store::postgres::SCHEMA_SQL;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Fingerprint, Hold, PostgresStore, Store};

use crate::postgres::fixture::{Fixture, LEASE, WEEK, key, run_on, shared};

const FRESH: Claim = Claim::Fresh { attempt: Some(1) };

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_that_migrate_at_once_all_succeed() {
    for round in 0..5 {
        let migrations = (0..8).map(|_| {
            let store =
                PostgresStore::builder(shared().pool()).table(&format!("race_{round}")).expect("a name").build();
            tokio::spawn(async move { store.migrate().await })
        });
        for migrated in join_all(migrations).await {
            migrated.expect("no panic").expect("a table");
        }
    }
}

#[tokio::test]
async fn migrating_again_keeps_what_is_there() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let claim = fixture.claim(&key, ClaimToken::random());
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), FRESH);
    fixture.store.migrate().await.expect("nothing to do");
    assert_eq!(fixture.store.renew(&claim).await.expect("an answer"), Hold::Held);
}

#[tokio::test]
async fn odd_names_are_names_and_nothing_else() {
    let mut connection = shared().connect().await;
    run_on(&mut connection, r#"CREATE SCHEMA "o.d""d"; CREATE TABLE victim (id int)"#.to_owned()).await;
    for name in [r#""we""ird; drop table victim; --""#, r#""o.d""d"."Ev'ents $1""#, r#""日本""#, r#"public."select""#]
    {
        let store = PostgresStore::builder(shared().pool()).table(name).expect("a name").build();
        store.migrate().await.expect(name);
        store.migrate().await.expect(name);
        let key = key("evt_1");
        let claim = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
        assert_eq!(store.claim(&claim).await.expect(name), FRESH);
        assert_eq!(store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect(name), Hold::Held);
        assert_eq!(store.purge().await.expect(name), 0);
        let kept = sqlx::query(AssertSqlSafe(format!("SELECT count(*) FROM {name}"))).fetch_one(&mut connection).await;
        assert_eq!(kept.expect(name).get::<i64, _>(0), 1, "under the very name");
        assert!(format!("{store:?}").contains("table"), "{store:?}");
    }
    run_on(&mut connection, "SELECT id FROM victim".to_owned()).await;
}

#[tokio::test]
async fn invalid_names_and_unusable_times_are_refused() {
    let builder = || PostgresStore::builder(shared().pool());
    for name in ["", "a b", "a.b.c", "events; DROP TABLE events", "\"unclosed", &"x".repeat(60)] {
        assert_eq!(builder().table(name).expect_err(name).kind(), ConfigErrorKind::Name);
    }
    assert_eq!(builder().deadline(Duration::ZERO).expect_err("zero").kind(), ConfigErrorKind::Duration);
    assert_eq!(builder().purge_every(Duration::ZERO).expect_err("zero").kind(), ConfigErrorKind::Duration);
}

#[tokio::test]
async fn printed_schema_is_all_that_is_needed() {
    let store = PostgresStore::builder(shared().pool()).table("by_hand").expect("a name").build();
    let mut connection = shared().connect().await;
    for _ in 0..2 {
        run_on(&mut connection, store.schema_sql().to_owned()).await;
    }
    let key = key("evt_1");
    let claim = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
    assert_eq!(store.claim(&claim).await.expect("an answer"), FRESH);
    let unquoted = store.schema_sql().replace('"', "");
    assert_eq!(unquoted.replace("by_hand", "webhook_events"), SCHEMA_SQL.replace('"', ""));
}

#[tokio::test]
async fn missing_table_is_told_with_what_to_do() {
    let store = PostgresStore::builder(shared().pool()).table("missing").expect("a name").build();
    let key = key("evt_1");
    let error = store.claim(&ClaimRequest::new(&key, ClaimToken::random(), WEEK)).await.expect_err("no table");
    let cause = error.source().expect("a cause");
    assert!(cause.to_string().contains("PostgresStore::migrate"), "{cause}");
    assert!(cause.source().expect("the server's word").to_string().contains("\"missing\" does not exist"));
    store.migrate().await.expect("a table");
    assert_eq!(store.claim(&ClaimRequest::new(&key, ClaimToken::random(), WEEK)).await.expect("an answer"), FRESH);
}

#[tokio::test]
async fn everything_about_an_event_is_in_its_row() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let token = ClaimToken::random();
    let claim = ClaimRequest::new(&key, token, LEASE).event_type(Some("invoice.paid"));
    let claim = claim.fingerprint(Fingerprint::from_u64(u64::MAX));
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), FRESH);
    let running =
        "SELECT count(*) FROM events WHERE state = 'running' AND event_type = 'invoice.paid' AND fingerprint = -1
        AND lease_until - received_at = interval '30 seconds' AND processed_at IS NULL AND expires_at IS NULL
        AND received_at BETWEEN now() - interval '1 minute' AND now()";
    assert_eq!(fixture.count(running).await, 1);
    assert_eq!(
        fixture.store.complete(&claim, &Completion::failed("no such account", WEEK)).await.expect("it"),
        Hold::Held
    );
    let failed = "SELECT count(*) FROM events WHERE state = 'failed' AND summary = 'no such account'
        AND processed_at >= received_at AND expires_at - processed_at = interval '7 days' AND length(token) = 16";
    assert_eq!(fixture.count(failed).await, 1);
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), Claim::Completed { same_body: true });
}

/// Postgres refuses NUL in a text, and a reason with one in it would never be stored.
#[tokio::test]
async fn nul_in_a_type_or_a_summary_is_replaced() {
    let fixture = Fixture::new().await;
    let key = key("evt_1");
    let claim = fixture.claim(&key, ClaimToken::random()).event_type(Some("in\0voice"));
    assert_eq!(fixture.store.claim(&claim).await.expect("an answer"), FRESH);
    assert_eq!(fixture.store.complete(&claim, &Completion::failed("b\0d", WEEK)).await.expect("it"), Hold::Held);
    let written = "SELECT count(*) FROM events WHERE event_type = U&'in\\FFFDvoice' AND summary = U&'b\\FFFDd'";
    assert_eq!(fixture.count(written).await, 1);
}
