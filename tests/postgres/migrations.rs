//! `migrate`: it completes tables of earlier releases while receivers use them, and leaves alone what is complete.

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_webhook::queue::{LeaseRequest, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer};

use crate::postgres::fixture::{Fixture, LEASE, PATIENCE, WEEK, eventually, key, run_on, shared};
use crate::support::logs::Logs;
use crate::support::scheme;
use crate::support::servers::postgres::{PostgresServer, Settings};

/// The tables of the release before versions were recorded.
const SCHEMA_1: &str = include_str!("../data/postgres_schema_1.sql");

/// An index of that release that no claim needs.
const INDEX: &str = "events_dead";

fn store(pool: &PgPool, table: &str) -> PostgresStore {
    PostgresStore::builder(pool.clone()).table(table).expect("a name").purge_by_hand().build()
}

/// What the catalogue says of a table: its columns and indexes, and whether these can be used.
pub(crate) async fn shape(fixture: &Fixture) -> Vec<String> {
    let sql = fixture.about(
        "SELECT format('%s %s %s', attname, format_type(atttypid, atttypmod), attnotnull) FROM pg_attribute
          WHERE attrelid = 'events'::regclass AND attnum > 0 AND NOT attisdropped
         UNION ALL
         SELECT format('%s %s', pg_get_indexdef(indexrelid), indisvalid) FROM pg_index WHERE indrelid = 'events'::regclass
         ORDER BY 1",
    );
    let rows: Vec<String> =
        sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(&fixture.pool).await.expect("the catalogue");
    rows.into_iter().map(|row| row.replace(&fixture.table, "events")).collect()
}

/// What a new table has and this one has not. An index that a later release has no use for may be left.
pub(crate) async fn missing(fixture: &Fixture, whole: &[String]) -> Vec<String> {
    let there = shape(fixture).await;
    whole.iter().filter(|part| !there.contains(part)).cloned().collect()
}

async fn comment(fixture: &Fixture) -> Option<String> {
    let sql = fixture.about("SELECT obj_description('events'::regclass, 'pg_class')");
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&fixture.pool).await.expect("the catalogue")
}

/// A table as the release before versions made it.
pub(crate) async fn table_of_version_1(server: &PostgresServer, table: &str) -> Fixture {
    let fixture = Fixture { pool: server.pool(), table: table.to_owned(), store: store(&server.pool(), table) };
    fixture.run(&SCHEMA_1.replace("webhook_events", table)).await;
    fixture
}

#[tokio::test]
async fn complete_table_is_neither_locked_nor_reported() {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off").set("log_min_messages=notice"));
    let fixture = Fixture::on(&server).await;
    let mut other = server.connect().await;
    run_on(&mut other, fixture.about("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")).await;
    let (written, (logs, _guard)) = (server.log(), Logs::capture());
    let migrated = tokio::time::timeout(PATIENCE, fixture.store.migrate()).await;
    migrated.expect("no wait for the table").expect("nothing to do");
    let lines = logs.lines().into_iter().filter(|line| line.level <= tracing::Level::INFO);
    assert_eq!(lines.map(|line| line.text).collect::<Vec<_>>(), [""; 0]);
    assert_eq!(server.log(), written, "nor does the server have anything to say");
    run_on(&mut other, "ROLLBACK".to_owned()).await;
}

#[tokio::test]
async fn least_privileged_role_may_call_it_on_a_complete_table() {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off"));
    for (table, is_marked) in [("marked", true), ("unmarked", false)] {
        let fixture = match is_marked {
            true => Fixture { pool: server.pool(), table: table.to_owned(), store: store(&server.pool(), table) },
            false => table_of_version_1(&server, table).await,
        };
        fixture.store.migrate().await.expect("a table");
        if !is_marked {
            fixture.run("COMMENT ON TABLE events IS NULL").await;
        }
        fixture
            .run(&format!(
                "CREATE ROLE {table}_app LOGIN; GRANT SELECT, INSERT, UPDATE, DELETE ON events TO {table}_app;
             GRANT USAGE ON SEQUENCE events_arrivals TO {table}_app"
            ))
            .await;
        let role = server.options().username(&format!("{table}_app"));
        let app = store(&PgPoolOptions::new().connect_lazy_with(role), table);
        app.migrate().await.expect("nothing to do, and no right to do it");
        works(&app).await;
        fixture.run(&format!("DROP INDEX {INDEX}")).await;
        let refused = app.migrate().await.expect_err("it is not the owner");
        let cause = std::error::Error::source(&refused).expect("a cause").to_string();
        assert!(cause.contains("must be owner"), "{cause}");
    }
}

/// A claim inline, and an event through the inbox.
async fn works(store: &PostgresStore) {
    let (inline, queued) = (key("inline"), key("queued"));
    let claim = ClaimRequest::new(&inline, ClaimToken::random(), WEEK);
    assert_eq!(store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
    assert_eq!(store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Held);
    let claim = ClaimRequest::new(&queued, ClaimToken::random(), WEEK);
    let stored_request = StoredRequest::new("head", "body", std::time::SystemTime::now());
    assert_eq!(store.enqueue(&claim, &stored_request).await.expect("an answer"), Claim::Fresh { attempt: None });
    let leased = store.lease(&LeaseRequest::new(1, LEASE)).await.expect("an answer").pop().expect("the event");
    let claim = leased.claim(LEASE);
    assert_eq!(store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Held);
}

#[tokio::test]
async fn table_of_the_release_before_versions_becomes_that_of_a_new_one() {
    let new = Fixture::new().await;
    let old = table_of_version_1(shared(), "version_1").await;
    let (queued, token) = (key("before"), ClaimToken::random());
    let claim = ClaimRequest::new(&queued, token, WEEK);
    old.run(&format!(
        "INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint, arrival, endpoint, due_at, head, body)
         VALUES ('{}', 'accepted', '\\x{}', now(), now(), 0, 0, nextval('events_arrivals'), '/webhooks', now(), '', 'body')",
        queued.as_str(),
        token
    ))
    .await;
    old.store.migrate().await.expect("completed");
    assert_eq!(missing(&old, &shape(&new).await).await, [""; 0]);
    assert_eq!(comment(&old).await, comment(&new).await);
    let leased = old.store.lease(&LeaseRequest::new(9, LEASE)).await.expect("an answer");
    assert_eq!(leased.iter().map(|event| &event.key).collect::<Vec<_>>(), [&queued], "what was waiting is run");
    assert_eq!(old.store.claim(&claim).await.expect("an answer"), Claim::Accepted { same_body: true });
    let done = Completion::succeeded("", WEEK);
    assert_eq!(old.store.complete(&leased[0].claim(LEASE), &done).await.expect("an answer"), Hold::Held);
    works(&old.store).await;
}

#[tokio::test]
async fn printed_schema_is_that_of_a_migrated_table() {
    let migrated = Fixture::new().await;
    let table = "printed";
    let printed = Fixture { pool: shared().pool(), table: table.to_owned(), store: store(&shared().pool(), table) };
    let sql = printed.store.schema_sql().to_owned();
    run_on(&mut shared().connect().await, sql).await;
    assert_eq!((shape(&printed).await, comment(&printed).await), (shape(&migrated).await, comment(&migrated).await));
}

#[tokio::test]
async fn version_is_recorded_beside_the_comment_of_the_owner() {
    let fixture = Fixture::new().await;
    let version = comment(&fixture).await.expect("a version");
    assert!(version.starts_with("tower-webhook schema "), "{version}");
    fixture.run("COMMENT ON TABLE events IS 'it''s the team''s \\ own'").await;
    fixture.store.migrate().await.expect("a version");
    assert_eq!(comment(&fixture).await, Some(format!("it's the team's \\ own\n{version}")));
    fixture.store.migrate().await.expect("nothing to do");
    assert_eq!(comment(&fixture).await, Some(format!("it's the team's \\ own\n{version}")));
}

#[tokio::test]
async fn table_of_a_later_release_is_left_alone() {
    let fixture = Fixture::new().await;
    fixture.run(&format!("COMMENT ON TABLE events IS 'tower-webhook schema 999'; DROP INDEX {INDEX}")).await;
    let before = shape(&fixture).await;
    fixture.store.migrate().await.expect("nothing to do");
    assert_eq!(shape(&fixture).await, before);
    works(&fixture.store).await;
}

/// A migration that was cut off while it waited for a transaction leaves an index behind that no query uses.
#[tokio::test]
async fn invalid_index_of_an_earlier_try_is_made_anew() {
    let fixture = Fixture::new().await;
    let whole = shape(&fixture).await;
    fixture.run(&format!("DROP INDEX {INDEX}")).await;
    let mut other = shared().connect().await;
    run_on(&mut other, fixture.about("BEGIN; UPDATE events SET attempts = 1")).await;
    let another = fixture.another();
    let migrating = tokio::spawn(async move { another.migrate().await });
    let invalid = "SELECT count(*) FROM pg_index WHERE indrelid = 'events'::regclass AND NOT indisvalid";
    eventually("the index is begun", async || fixture.count(invalid).await == 1).await;
    let cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE query LIKE 'CREATE INDEX CONCURRENTLY \"events_dead%'";
    fixture.run(cut).await;
    migrating.await.expect("no panic").expect_err("cut off");
    run_on(&mut other, "ROLLBACK".to_owned()).await;
    assert_eq!(fixture.count(invalid).await, 1);
    fixture.store.migrate().await.expect("made anew");
    assert_eq!(shape(&fixture).await, whole);
}

#[tokio::test]
async fn name_that_another_table_has_taken_is_told() {
    let fixture = Fixture::new().await;
    fixture
        .run(&format!(
            "DROP INDEX {INDEX}; CREATE TABLE events_other (id int); CREATE INDEX {INDEX} ON events_other (id)"
        ))
        .await;
    let refused = fixture.store.migrate().await.expect_err("no room");
    let cause = std::error::Error::source(&refused).expect("a cause").to_string();
    assert!(cause.contains("already exists"), "{cause}");
}

/// Two at once on a table where something is missing: two `CREATE INDEX CONCURRENTLY` of one table wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instances_that_complete_a_table_at_once_all_succeed() {
    let whole = shape(&Fixture::new().await).await;
    for round in 0..3 {
        let old = table_of_version_1(shared(), &format!("at_once_{round}")).await;
        old.run(&format!("DROP INDEX {INDEX}; DROP INDEX events_arrival")).await;
        let migrations = (0..4).map(|_| {
            let store = store(&shared().pool(), &old.table);
            tokio::spawn(async move { store.migrate().await })
        });
        for migrated in join_all(migrations).await {
            migrated.expect("no panic").expect("a whole table");
        }
        assert_eq!(missing(&old, &whole).await, [""; 0]);
    }
}

/// Another migrator commits the index that it was building, and unlocks, after this one has read the catalogue and before it has the
/// lock. The functions of the lock are shadowed by ones that do this.
#[tokio::test]
async fn index_that_becomes_valid_before_the_lock_is_had_is_kept() {
    for is_pooled in [false, true] {
        let fixture = Fixture::new().await;
        let hooks = format!("hooks_{is_pooled}");
        let becomes_valid = |lock: &str| {
            format!(
                "CREATE FUNCTION {hooks}.{lock}(key bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
                    UPDATE pg_index SET indisvalid = true WHERE indexrelid = 'public.{INDEX}'::regclass;
                    RETURN pg_catalog.{lock}(key);
                 END $$;"
            )
        };
        let locks = ["pg_try_advisory_lock", "pg_try_advisory_xact_lock"].map(becomes_valid).concat();
        fixture
            .run(&format!(
                "CREATE SCHEMA {hooks}; {locks}
             UPDATE pg_index SET indisvalid = false WHERE indexrelid = '{INDEX}'::regclass"
            ))
            .await;
        let built = format!("SELECT '{INDEX}'::regclass::oid::bigint");
        let before = fixture.count(&built).await;
        let path = shared().options().options([("search_path", format!("{hooks},pg_catalog,public"))]);
        let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(path);
        let store = PostgresStore::builder(pool).table(&fixture.table).expect("a name");
        let store = if is_pooled { store.pooled() } else { store }.build();
        store.migrate().await.expect("a whole table");
        let valid = format!("SELECT count(*) FROM pg_index WHERE indexrelid = '{INDEX}'::regclass AND indisvalid");
        assert_eq!((fixture.count(&built).await, fixture.count(&valid).await), (before, 1), "pooled: {is_pooled}");
    }
}

/// During a deploy the release before versions migrates, too. It waits for the lock with a snapshot that `CONCURRENTLY` waits for:
/// the server ends one of the two waits, and this release tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn release_before_versions_may_migrate_at_the_same_time() {
    let fixture = Fixture::new().await;
    let whole = shape(&fixture).await;
    let lock = i64::from_be_bytes(*b"webhooks");
    let earlier =
        format!("SELECT pg_advisory_xact_lock({lock}); {}", SCHEMA_1.replace("webhook_events", &fixture.table));
    for _ in 0..5 {
        fixture.run("DROP INDEX events_dead, events_arrival").await;
        let mut connections = [shared().connect().await, shared().connect().await];
        let earlier =
            connections.iter_mut().map(|connection| sqlx::raw_sql(AssertSqlSafe(&*earlier)).execute(connection));
        // That release does not try again: its wait may be the one that is ended.
        let (migrated, _) = futures_util::future::join(fixture.store.migrate(), join_all(earlier)).await;
        migrated.expect("a whole table");
        assert_eq!(missing(&fixture, &whole).await, [""; 0]);
    }
}

/// A receiver whose handler of `slow` keeps its transaction open until it is told.
struct Busy {
    app: Router,
    entered: Arc<Notify>,
    go: Arc<Notify>,
}

impl Busy {
    fn on(fixture: &Fixture) -> Self {
        let (entered, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (tell, wait, pool) = (entered.clone(), go.clone(), fixture.pool.clone());
        let handler = move |event: WebhookEvent| {
            let (tell, wait, pool) = (tell.clone(), wait.clone(), pool.clone());
            async move {
                if event.id() == "slow" {
                    let mut transaction = pool.begin().await?;
                    event.complete_in(&mut *transaction).await?;
                    tell.notify_one();
                    wait.notified().await;
                    transaction.commit().await?;
                }
                Ok::<_, HandlerError>(())
            }
        };
        let layer = WebhookLayer::new(scheme(), fixture.store.clone());
        Self { app: Router::new().route("/webhooks", post(handler)).layer(layer), entered, go }
    }

    async fn deliver(app: Router, id: String) -> Option<Outcome> {
        let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}"}}"#));
        let response = app.oneshot(delivery.request()).await.expect("a router cannot fail");
        response.extensions().get().cloned()
    }
}

/// The exactly-once transaction of one handler is open for long, and a new instance starts.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn deliveries_are_answered_while_an_index_is_missing_and_a_transaction_is_open() {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off"));
    let fixture = Fixture::on(&server).await;
    let whole = shape(&fixture).await;
    fixture.run(&format!("DROP INDEX {INDEX}")).await;
    let busy = Busy::on(&fixture);
    assert_eq!(Busy::deliver(busy.app.clone(), "warm".to_owned()).await, Some(Outcome::Completed));
    let slow = tokio::spawn(Busy::deliver(busy.app.clone(), "slow".to_owned()));
    busy.entered.notified().await;

    let another = fixture.another();
    let migrating = tokio::spawn(async move { another.migrate().await });
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE wait_event_type = 'Lock' AND query LIKE 'CREATE INDEX CONCURRENTLY%'";
    eventually("the migration waits for the handler", async || fixture.count(waiting).await == 1).await;
    for n in 0..20 {
        let id = format!("evt_{n}");
        assert_eq!(Busy::deliver(busy.app.clone(), id.clone()).await, Some(Outcome::Completed), "{id}");
        assert_eq!(Busy::deliver(busy.app.clone(), id.clone()).await, Some(Outcome::Duplicate), "{id}");
    }
    assert!(!migrating.is_finished(), "it waited all the time");
    busy.go.notify_one();
    assert_eq!(slow.await.expect("no panic"), Some(Outcome::Completed));
    migrating.await.expect("no panic").expect("a whole table");
    assert_eq!(shape(&fixture).await, whole);
}

/// A brief change never waits for long: whatever waits for a lock on the table has every claim wait behind it.
#[tokio::test]
async fn change_that_does_not_get_its_lock_gives_up_and_is_tried_again() {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off"));
    let fixture = Fixture::on(&server).await;
    fixture.run("DROP SEQUENCE events_arrivals").await;
    let mut other = server.connect().await;
    run_on(&mut other, fixture.about("BEGIN; LOCK TABLE events IN ACCESS EXCLUSIVE MODE")).await;
    let another = fixture.another();
    let migrating = tokio::spawn(async move { another.migrate().await });
    eventually("it gave up twice", async || server.log().matches("due to lock timeout").count() >= 2).await;
    run_on(&mut other, "ROLLBACK".to_owned()).await;
    migrating.await.expect("no panic").expect("a whole table");
    works(&fixture.store).await;
}
