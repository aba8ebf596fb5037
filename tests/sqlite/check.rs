//! The check at start-up: what works is reported, what is wrong is an error with a remedy or a warning.

use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions, SqliteSynchronous};
use tower_webhook::store::{SqliteStore, StoreErrorKind};

use crate::sqlite::fixture::{Fixture, write_lock};
use crate::support::logs::Logs;

#[tokio::test]
async fn database_that_works_is_reported_without_a_warning_and_nothing_is_left() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let (logs, _guard) = Logs::capture();
    let report = store.check().await.expect("a report");
    assert_eq!(report.warnings, [""; 0]);
    assert_eq!((&*report.journal_mode, &*report.synchronous), ("wal", "full"));
    assert!(report.sqlite_version.starts_with("3."), "{report:?}");
    assert_eq!(report.file_system.as_deref(), Some("tmpfs"), "the tests' directory is in memory");
    let rows: i64 =
        sqlx::query_scalar("SELECT count(*) FROM webhook_events").fetch_one(&pool).await.expect("an answer");
    assert_eq!((rows, logs.lines().len()), (0, 0));
}

#[tokio::test]
async fn pool_that_does_not_sync_is_warned_about() {
    let fixture = Fixture::new();
    let careless = SqliteConnectOptions::new()
        .filename(fixture.path())
        .create_if_missing(true)
        .synchronous(SqliteSynchronous::Normal);
    let pool = SqlitePoolOptions::new().connect_with(careless).await.expect("a pool");
    let store = SqliteStore::new(&pool).await.expect("a store");
    let (logs, _guard) = Logs::capture();
    let report = store.check().await.expect("a report");
    assert_eq!((&*report.synchronous, report.warnings.len()), ("normal", 1));
    assert_eq!(logs.count("synchronous is normal"), 1, "operators are told");
}

#[tokio::test]
async fn table_of_a_later_release_is_warned_about_and_works() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    let later = "ALTER TABLE webhook_events ADD COLUMN of_a_later_release INTEGER";
    sqlx::query(later).execute(&pool).await.expect("a column");
    let report = store.check().await.expect("a report");
    assert_eq!(report.unknown_columns, ["of_a_later_release"]);
    assert!(report.warnings[0].contains("of_a_later_release"), "{report:?}");
    drop(store);
    fixture.store().await.check().await.expect("a store that opens the same file anew");
}

#[tokio::test]
async fn table_of_an_earlier_release_has_no_columns_of_a_later_one() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    sqlx::raw_sql("PRAGMA journal_mode = WAL").execute(&pool).await.expect("an application");
    sqlx::raw_sql(include_str!("../data/sqlite_schema_0_1.sql")).execute(&pool).await.expect("the tables of then");
    let report = fixture.store().await.check().await.expect("a report");
    assert_eq!((report.unknown_columns, report.warnings), (Vec::new(), Vec::new()));
}

#[tokio::test]
async fn missing_table_and_missing_file_are_errors_that_say_so() {
    let fixture = Fixture::new();
    let (store, pool) = (fixture.store().await, fixture.pool().await);
    sqlx::query("DROP TABLE webhook_events").execute(&pool).await.expect("an operator's mistake");
    let error = store.check().await.expect_err("there is no table");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(format!("{error:?}").contains("the table \"webhook_events\" is missing from"), "{error:?}");

    let gone = SqliteStore::open(fixture.directory().join("gone.db")).await.expect("a store");
    std::fs::remove_file(fixture.directory().join("gone.db")).expect("the file");
    let error = gone.check().await.expect_err("there is no file");
    assert!(format!("{error:?}").contains("gone.db could not be opened: its directory must be there"), "{error:?}");
}

#[tokio::test]
async fn file_that_cannot_be_written_is_an_error_that_says_so() {
    let fixture = Fixture::new();
    drop(fixture.store().await);
    let options = SqliteConnectOptions::new().filename(fixture.path()).read_only(true);
    let pool = SqlitePoolOptions::new().connect_lazy_with(options);
    let error = SqliteStore::new(&pool).await.expect("a store").check().await.expect_err("it can only be read");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(format!("{error:?}").contains("must be able to write"), "{error:?}");
}

#[tokio::test]
async fn write_lock_that_is_not_given_up_is_an_error() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    let wait = std::time::Duration::from_millis(100);
    let store = SqliteStore::builder().lock_wait(wait).build(&pool).await.expect("a store");
    let transaction = write_lock(&pool).await;
    assert_eq!(store.check().await.expect_err("it cannot write").kind(), StoreErrorKind::Locked);
    transaction.rollback().await.expect("the end of the transaction");
    assert_eq!(store.check().await.expect("a report").warnings, [""; 0]);
}

#[tokio::test]
async fn file_that_cannot_be_a_database_is_told_in_a_sentence() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path(), "no database".repeat(1000)).expect("a file");
    let error = SqliteStore::open(fixture.path()).await.expect_err("no database");
    let path = fixture.path();
    let said = format!("the SQLite database {} could not be opened: the file is something else", path.display());
    assert!(format!("{error:?}").contains(&said), "{error:?}");
}
