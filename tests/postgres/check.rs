//! The check at start-up, beside what poolers make of it (`pooled.rs`); and servers that cannot be reached.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::net::TcpSocket;
use tower_webhook::store::postgres::PostgresReport;
use tower_webhook::store::{PostgresStore, StoreErrorKind};

use crate::postgres::fixture::{Fixture, PATIENCE, patient, shared};
use crate::postgres::migrations::table_of_version_1;
use crate::support::logs::Logs;

/// A pool of sessions with these settings.
fn pool_with(settings: &[(&str, &str)]) -> sqlx::PgPool {
    PgPoolOptions::new().connect_lazy_with(shared().options().options(settings.iter().copied()))
}

#[tokio::test]
async fn table_is_reported_with_its_version_and_what_it_lacks() {
    let store = patient(&shared().pool(), "nowhere_to_be_found").build();
    let (logs, _guard) = Logs::capture();
    let error = store.check().await.expect_err("there is no table");
    assert!(format!("{error:?}").contains("call PostgresStore::migrate"), "{error:?}");
    assert_eq!(logs.count("is missing: call PostgresStore::migrate"), 1);

    let old = table_of_version_1(shared(), "check_of_version_1").await;
    let _ = old.store.check().await;
    assert_eq!(logs.count("is of version 1, and this release needs version"), 1);
    old.store.migrate().await.expect("a table");
    let report = old.store.check().await.expect("a report");
    assert!(report.is_migrated && report.schema_version.is_some_and(|version| version > 1), "{report:?}");

    old.run("COMMENT ON TABLE events IS 'tower-webhook schema 1000'").await;
    let report = old.store.check().await.expect("a report");
    assert_eq!((report.schema_version, report.is_migrated), (Some(1000), true), "a later release serves this one");
}

/// The server's clock is made to differ by a function of that name in an earlier schema of the search path.
#[tokio::test]
async fn clock_that_differs_is_warned_about() {
    let fixture = Fixture::new().await;
    let report = fixture.store.check().await.expect("a report");
    let of_clocks = |report: &PostgresReport| {
        report.warnings.iter().filter(|warning| warning.contains("clock")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of_clocks(&report), [""; 0], "one machine has one clock");
    assert!(report.clock_ahead_ms.abs() < 5_000, "{report:?}");
    for (schema, shift, expected) in
        [("ahead", "+ interval '1 hour'", "s ahead of"), ("behind", "- interval '1 hour'", "behind")]
    {
        let schema = format!("{schema}_{}", fixture.table.replace("events", "clock"));
        fixture
            .run(&format!(
                "CREATE SCHEMA {schema}; CREATE FUNCTION {schema}.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
                 $$SELECT pg_catalog.clock_timestamp() {shift}$$"
            ))
            .await;
        let path = format!("{schema},pg_catalog,public");
        let store = patient(&pool_with(&[("search_path", &path)]), &fixture.table).build();
        let report = store.check().await.expect("a report");
        let warnings = of_clocks(&report);
        assert!(warnings.len() == 1 && warnings[0].contains(expected), "{report:?}");
    }
}

/// Neither a write nor the right to one.
#[tokio::test]
async fn migrating_a_complete_table_writes_nothing() {
    let fixture = Fixture::new().await;
    let read_only = shared().options().options([("default_transaction_read_only", "on")]);
    let pool = PgPoolOptions::new().connect_lazy_with(read_only.clone());
    let (logs, _guard) = Logs::capture();
    patient(&pool, &fixture.table).build().migrate().await.expect("nothing to do");
    patient(&pool, &fixture.table).direct(read_only).build().migrate().await.expect("nothing to do");
    let loud: Vec<_> = logs.lines().into_iter().filter(|line| line.level <= tracing::Level::INFO).collect();
    assert!(loud.is_empty(), "{loud:?}");
    patient(&pool, &format!("{}_new", fixture.table)).build().migrate().await.expect_err("a table to create");
}

#[tokio::test]
async fn server_that_cannot_be_reached_is_told_in_a_sentence_with_a_remedy() {
    // A port that is taken, and on which nothing listens.
    let taken = TcpSocket::new_v4().expect("a socket");
    taken.bind(([127, 0, 0, 1], 0).into()).expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let nowhere = PgConnectOptions::new().host("127.0.0.1").port(port).username("me");
    let brief = PgPoolOptions::new().acquire_timeout(Duration::from_millis(200));
    let store =
        PostgresStore::builder(brief.connect_lazy_with(nowhere)).deadline(PATIENCE).expect("a deadline").build();
    let error = store.check().await.expect_err("there is no server");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let said = format!("{error:?}");
    assert!(said.starts_with("the store is unavailable: the server cannot be reached: check that it runs"), "{said}");
    assert!(said.contains("refused"), "the cause: {said}");

    let said = format!("{:?}", store.migrate().await.expect_err("there is no server"));
    assert!(said.contains("the pool gave no connection in time: the server cannot be reached"), "{said}");
}
