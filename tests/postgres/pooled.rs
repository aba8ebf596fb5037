//! A store behind PgBouncer in transaction mode, the version without prepared statements: it keeps the contract, survives the
//! pooler's death, and leaves nothing behind on sessions that others use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, Row};
use tower::ServiceExt;
use tower_webhook::queue::{Filter, LeaseRequest, Page, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, PostgresStore, Store};
use tower_webhook::testing::{TestSender, conformance};
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer, Worker};

use crate::postgres::conformance::Tables;
use crate::postgres::fixture::{Fixture, LEASE, PATIENCE, WEEK, eventually, key, patient, pooler, run_on, shared};
use crate::postgres::receiver::{Receiver, assert_unavailable};
use crate::support::logs::Logs;
use crate::support::scheme;
use crate::support::servers::pgbouncer::{Pgbouncer, SESSIONS};
use crate::support::servers::postgres::{PostgresServer, Settings};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn store_behind_a_pooler_keeps_the_contract() {
    conformance::store().run(&Tables::behind_a_pooler()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn inbox_behind_a_pooler_keeps_the_contract() {
    conformance::queue().run(&Tables::behind_a_pooler()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn completed_bodies_go_before_their_records_behind_a_pooler() {
    for kept in [Duration::from_secs(60), Duration::ZERO] {
        conformance::completed_bodies(kept).run(&Tables::behind_a_pooler().keeping_bodies(kept)).await;
    }
}

/// Handlers that write an effect in the transaction that completes their event.
fn transactional(pool: &PgPool, table: &str) -> Router {
    let (pool, insert) = (pool.clone(), format!("INSERT INTO {table}_effects VALUES ($1)"));
    let handler = move |event: WebhookEvent| {
        let (pool, insert) = (pool.clone(), insert.clone());
        async move {
            let mut transaction = pool.begin().await?;
            event.complete_in(&mut *transaction).await?;
            let effect = sqlx::query(AssertSqlSafe(insert)).bind(event.id().to_owned()).persistent(false);
            effect.execute(&mut *transaction).await?;
            transaction.commit().await?;
            Ok::<_, HandlerError>(())
        }
    };
    Router::new().route("/webhooks", post(handler))
}

async fn deliver(app: Router, id: String) -> Option<Outcome> {
    let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}","type":"test.event"}}"#));
    let response = app.oneshot(delivery.request()).await.expect("a router cannot fail");
    response.extensions().get().cloned()
}

/// A pool of the handlers' that waits for its turn however busy the machine is.
fn handlers_pool(pooler: &Pgbouncer, server: &PostgresServer) -> PgPool {
    let options = PgPoolOptions::new().max_connections(8).acquire_timeout(PATIENCE);
    options.connect_lazy_with(pooler.options(server))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn effects_and_completions_are_committed_together_behind_a_pooler() {
    let fixture = Fixture::pooled().await;
    fixture.run("CREATE TABLE events_effects (event text)").await;
    let pool = handlers_pool(pooler(), shared());
    let layer = WebhookLayer::new(scheme(), fixture.store.clone()).claim_deadline(PATIENCE).expect("a deadline");
    let app = transactional(&pool, &fixture.table).layer(layer);
    let deliveries = (0..100).map(|n| tokio::spawn(deliver(app.clone(), format!("evt_{}", n % 50))));
    for delivered in join_all(deliveries).await {
        let outcome = delivered.expect("no panic");
        assert!(matches!(outcome, Some(Outcome::Completed | Outcome::Duplicate)), "{outcome:?}");
    }
    assert_eq!(fixture.count("SELECT count(*) FROM events_effects").await, 50);
    assert_eq!(fixture.count("SELECT count(DISTINCT event) FROM events_effects").await, 50);
    assert_eq!(fixture.count("SELECT count(*) FROM events WHERE state = 'completed'").await, 50);
}

/// What sessions of the pooler's have on them that a client left there. PgBouncer itself sets what it tracks of its clients.
async fn left_behind(pooler: &Pgbouncer, server: &PostgresServer) -> Vec<String> {
    let mut clients: Vec<PgConnection> = Vec::new();
    let (mut found, mut pids) = (Vec::new(), Vec::new());
    for _ in 0..SESSIONS {
        let mut client = PgConnection::connect_with(&pooler.options(server)).await.expect("a client of the pooler");
        // Each has a session of its own until it ends the transaction.
        run_on(&mut client, "BEGIN".to_owned()).await;
        let rows = sqlx::raw_sql(
            "SELECT pg_backend_pid()::text, '' UNION ALL
             SELECT 'setting', name || ' = ' || setting FROM pg_settings WHERE source = 'session'
                AND name NOT IN ('client_encoding', 'DateStyle', 'TimeZone', 'standard_conforming_strings', 'application_name')
             UNION ALL SELECT 'statement', name FROM pg_prepared_statements
             UNION ALL SELECT 'channel', pg_listening_channels()
             UNION ALL SELECT 'lock', objid::text FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        );
        let mut rows = rows.fetch_all(&mut client).await.expect("what there is").into_iter();
        pids.push(rows.next().expect("the session").get::<String, _>(0));
        found.extend(rows.map(|row| format!("{} {}", row.get::<String, _>(0), row.get::<String, _>(1))));
        clients.push(client);
    }
    pids.dedup();
    assert_eq!(pids.len(), SESSIONS, "all of the pooler's sessions were asked");
    for client in clients {
        client.close().await.expect("closed");
    }
    found
}

/// Everything that a store does: claims, settlements, the inbox, its operators, its purge, its migration, a worker.
async fn use_everything(store: &PostgresStore) {
    for n in 0..20 {
        let key = key(&format!("inline_{n}"));
        let claim = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
        assert_eq!(store.claim(&claim).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
        assert_eq!(store.renew(&claim).await.expect("an answer"), Hold::Held);
        assert_eq!(store.complete(&claim, &Completion::succeeded("", WEEK)).await.expect("an answer"), Hold::Held);
    }
    for n in 0..3 {
        let key = key(&format!("queued_{n}"));
        let claim = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
        let stored_request = StoredRequest::new("head", "body", SystemTime::now());
        assert_eq!(store.enqueue(&claim, &stored_request).await.expect("an answer"), Claim::Fresh { attempt: None });
    }
    assert_eq!(store.waiting(9).await.expect("an answer"), 3);
    assert_eq!(store.list(&Filter::all(), &Page::first(9)).await.expect("an answer").len(), 3);
    assert!(store.get(&key("queued_0")).await.expect("an answer").is_some());
    let leased = store.lease(&LeaseRequest::new(2, LEASE)).await.expect("an answer");
    assert_eq!(store.bury(&leased[0].claim(LEASE), "no").await.expect("an answer"), Hold::Held);
    assert_eq!(store.retry(&leased[1].claim(LEASE), Duration::ZERO, "no").await.expect("an answer"), Hold::Held);
    assert_eq!(store.requeue(&Filter::all(), false).await.expect("an answer").events, 1);
    assert_eq!(store.discard(&Filter::all(), WEEK).await.expect("an answer"), 3);
    assert_eq!(store.forget(&Filter::all()).await.expect("an answer"), 3);
    assert_eq!(store.counts().await.expect("an answer").completed, 0);
    store.purge().await.expect("an answer");
    store.migrate().await.expect("nothing to do");
    let report = store.check().await.expect("a report");
    assert!(report.behind_pooler && report.is_migrated, "{report:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_left_on_sessions_that_others_use() {
    let server = PostgresServer::start_with(Settings::default());
    let pooler = Pgbouncer::before(&server);
    let pool = handlers_pool(&pooler, &server);
    let stores = ["one", "other"].map(|table| patient(&pool, table).pooled().build());
    for store in &stores {
        store.migrate().await.expect("a table");
    }
    join_all(stores.iter().map(use_everything)).await;
    let layer = WebhookLayer::new(scheme(), stores[0].clone());
    run_on(&mut server.connect().await, "CREATE TABLE one_effects (event text)".to_owned()).await;
    assert_eq!(deliver(transactional(&pool, "one").layer(layer), "evt_1".to_owned()).await, Some(Outcome::Completed));
    assert_eq!(left_behind(&pooler, &server).await, [""; 0]);

    // A store that knows of no pooler leaves its settings there: what is looked for would be seen.
    let unaware = patient(&pool, "one").build();
    let key = key("unaware");
    let _ = unaware.claim(&ClaimRequest::new(&key, ClaimToken::random(), WEEK)).await;
    let left = left_behind(&pooler, &server).await;
    assert!(left.iter().any(|what| what.starts_with("setting statement_timeout")), "{left:?}");
}

/// A receiver with everything as it is by default, but for the pooler.
fn receiver(pooler: &Pgbouncer, server: &PostgresServer) -> Receiver {
    Receiver::on_store(PostgresStore::builder(pooler.pool(server)).pooled().build())
}

#[tokio::test]
async fn killed_pooler_is_a_503_until_it_is_back() {
    let server = PostgresServer::start();
    let mut pooler = Pgbouncer::before(&server);
    let receiver = receiver(&pooler, &server);
    receiver.store.migrate().await.expect("a table");
    assert_eq!(receiver.deliver_until_acknowledged("evt_0").await.outcome, Some(Outcome::Completed));
    receiver.handler.hold();
    let running = receiver.spawn("evt_running");
    receiver.handler.started(2).await;
    receiver.handler.hold_no_more();
    pooler.kill();
    assert_unavailable(&receiver.deliver("evt_1").await);
    receiver.handler.go();
    assert_eq!(running.await.expect("no panic").outcome, Some(Outcome::CompletionPending));
    pooler.restart();
    assert_eq!(receiver.deliver_until_acknowledged("evt_1").await.outcome, Some(Outcome::Completed));
    receiver.settled().await;
    for id in ["evt_0", "evt_1", "evt_running"] {
        assert_eq!(receiver.deliver_until_acknowledged(id).await.outcome, Some(Outcome::Duplicate), "{id}");
    }
    assert_eq!(receiver.handler.runs(), 3);
    receiver.check(&server).await;
}

/// Handlers run while the pooler dies, and while there is none; what their leases were is known on the server only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_runs_every_event_though_the_pooler_is_killed_again_and_again() {
    const EVENTS: usize = 300;
    const KILLS: usize = 3;
    let server = PostgresServer::start_with(Settings::default().set("fsync=off"));
    let mut pooler = Pgbouncer::before(&server);
    let store = PostgresStore::builder(pooler.pool(&server)).pooled().build();
    store.migrate().await.expect("a table");
    let ran = Arc::new(Mutex::new(HashMap::<String, usize>::new()));
    let runs = ran.clone();
    let handler = move |event: WebhookEvent| {
        let runs = runs.clone();
        async move {
            *runs.lock().expect("no panic under the lock").entry(event.id().to_owned()).or_default() += 1;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let handlers = Router::new().route("/webhooks", post(handler));
    let app = handlers.clone().layer(WebhookLayer::inbox(scheme(), store.clone()));
    for n in 0..EVENTS {
        let id = format!("evt_{n}");
        eventually("it is accepted", async || {
            let outcome = deliver(app.clone(), id.clone()).await;
            matches!(outcome, Some(Outcome::Accepted | Outcome::Duplicate))
        })
        .await;
    }
    // The leases of a batch that was lost end soon enough to wait for.
    let worker = Worker::new(store.clone(), handlers).concurrency(4).expect("a number").batch(16).expect("a number");
    let worker = worker.lease(Duration::from_secs(5)).expect("a lease");
    let worker = worker.poll_every(Duration::from_millis(100)).expect("an interval");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async move { _ = stopped.await }));
    let distinct = || ran.lock().expect("no panic under the lock").len();
    for kill in 1..=KILLS {
        eventually("it works", async || distinct() >= kill * EVENTS / (KILLS + 2)).await;
        pooler.kill();
        eventually("the pooler is missed", async || store.waiting(1).await.is_err()).await;
        pooler.restart();
    }
    let fixture = Fixture { pool: server.pool(), table: "webhook_events".to_owned(), store };
    eventually("every event is completed", async || {
        fixture.count("SELECT count(*) FROM events WHERE state = 'completed'").await == EVENTS as i64
    })
    .await;
    assert_eq!((distinct(), fixture.count("SELECT count(*) FROM events").await), (EVENTS, EVENTS as i64));
    stop.send(()).expect("it works");
    working.await.expect("no panic");
}

/// A pooler closes its sessions every now and then, and so does the server; a delivery must not pay for it.
#[tokio::test]
async fn session_that_ends_behind_the_pooler_costs_no_delivery() {
    let server = PostgresServer::start();
    let pooler = Pgbouncer::before(&server);
    let receiver = receiver(&pooler, &server);
    receiver.store.migrate().await.expect("a table");
    let mut operator = server.connect().await;
    for n in 0..5 {
        let answer = receiver.deliver(&format!("evt_{n}")).await;
        assert_eq!(answer.outcome, Some(Outcome::Completed), "{n}");
        let ended = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        assert!(run_on(&mut operator, ended.to_owned()).await >= 1, "the pooler has sessions");
    }
    assert_eq!(receiver.handler.runs(), 5);
    receiver.check(&server).await;
}

#[tokio::test]
async fn table_is_completed_through_the_pooler_while_it_is_small() {
    let fixture = Fixture::pooled().await;
    let valid = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('events_dead') AND indisvalid";
    fixture.run("DROP INDEX events_dead; DROP SEQUENCE events_arrivals").await;
    let stores = [(); 4].map(|()| patient(&pooler().pool(shared()), &fixture.table).pooled().build());
    for migrated in join_all(stores.iter().map(PostgresStore::migrate)).await {
        migrated.expect("a whole table");
    }
    assert_eq!(fixture.count(valid).await, 1);
    use_everything(&fixture.store).await;
}

/// An index on a large table is built beside receivers, which takes a session.
#[tokio::test]
async fn large_table_is_completed_past_the_pooler() {
    let fixture = Fixture::pooled().await;
    let valid = "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('events_dead') AND indisvalid";
    fixture.run(
        "DROP INDEX events_dead;
         INSERT INTO events (key, state, token, lease_until, received_at, attempts, fingerprint, summary)
         SELECT 'filler ' || n, 'completed', '', now(), now(), 1, 0, repeat('x', 1900) FROM generate_series(1, 10000) n",
    )
    .await;
    let refused = fixture.store.migrate().await.expect_err("a table that is too large to be locked");
    let cause = std::error::Error::source(&refused).expect("a cause").to_string();
    assert!(cause.contains("PostgresStoreBuilder::direct"), "{cause}");
    assert_eq!(fixture.count(valid).await, 0);
    let direct = patient(&pooler().pool(shared()), &fixture.table).pooled().direct(shared().options()).build();
    direct.migrate().await.expect("a whole table");
    assert_eq!(fixture.count(valid).await, 1);
}

#[tokio::test]
async fn worker_is_woken_past_the_pooler() {
    let fixture = Fixture::pooled().await;
    let elsewhere = patient(&pooler().pool(shared()), &fixture.table).pooled().direct(shared().options()).build();
    let woken = tokio::spawn(async move {
        // The first time when it begins to listen, for whatever was told before.
        elsewhere.wake().await;
        elsewhere.wake().await;
    });
    let numbers = std::sync::atomic::AtomicU32::new(0);
    eventually("it is woken", async || {
        let key = key(&numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
        let claim = ClaimRequest::new(&key, ClaimToken::random(), WEEK);
        fixture.store.enqueue(&claim, &StoredRequest::new("head", "body", SystemTime::now())).await.expect("an answer");
        woken.is_finished()
    })
    .await;
}

/// Without a direct connection a worker looks every now and then.
#[tokio::test]
async fn worker_behind_a_pooler_polls() {
    let fixture = Fixture::pooled().await;
    let (told, mut ran) = tokio::sync::mpsc::unbounded_channel();
    let handler = post(move |event: WebhookEvent| async move { _ = told.send(event.id().to_owned()) });
    let elsewhere = patient(&pooler().pool(shared()), &fixture.table).pooled().build();
    let worker = Worker::new(elsewhere, Router::new().route("/webhooks", handler));
    let worker = worker.poll_every(Duration::from_millis(100)).expect("an interval");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async move { _ = stopped.await }));
    let app =
        Router::new().route("/webhooks", post(|| async {})).layer(WebhookLayer::inbox(scheme(), fixture.store.clone()));
    for id in ["evt_1", "evt_2"] {
        assert_eq!(deliver(app.clone(), id.to_owned()).await, Some(Outcome::Accepted));
        let seen = tokio::time::timeout(PATIENCE, ran.recv()).await.expect("it is run");
        assert_eq!(seen.as_deref(), Some(id));
    }
    stop.send(()).expect("it works");
    working.await.expect("no panic");
}

#[tokio::test]
async fn pooler_that_the_store_was_not_told_of_is_warned_about() {
    let server = PostgresServer::start();
    let pooler = Pgbouncer::before(&server);
    let (logs, _guard) = Logs::capture();
    let unaware = PostgresStore::new(pooler.pool(&server));
    let report = unaware.check().await.expect("a report");
    assert!(report.behind_pooler && !report.is_migrated, "{report:?}");
    assert!(report.warnings.iter().any(|warning| warning.contains("PostgresStoreBuilder::pooled")), "{report:?}");
    assert_eq!(logs.count("PostgresStoreBuilder::pooled"), 1, "operators are told");
    assert_eq!(left_behind(&pooler, &server).await, [""; 0], "nor does the check do harm");
    let aware = PostgresStore::builder(pooler.pool(&server)).pooled().build();
    aware.migrate().await.expect("a table");
    let report = aware.check().await.expect("a report");
    assert!(report.behind_pooler && report.is_migrated && report.warnings.is_empty(), "{report:?}");
    for (options, warnings) in [(server.options(), 0), (pooler.options(&server), 1)] {
        let store = PostgresStore::builder(pooler.pool(&server)).pooled().direct(options).build();
        let report = store.check().await.expect("a report");
        assert_eq!(report.warnings.len(), warnings, "{report:?}");
    }
}

#[tokio::test]
async fn check_of_a_server_without_a_pooler_finds_none() {
    let server = PostgresServer::start();
    let store = PostgresStore::new(server.pool());
    store.check().await.expect_err("there is no table");
    store.migrate().await.expect("a table");
    let report = store.check().await.expect("a report");
    assert!(!report.behind_pooler && report.is_migrated && report.warnings.is_empty(), "{report:?}");
    assert!(report.server_version.starts_with(|c: char| c.is_ascii_digit()), "{report:?}");
    let fixture = Fixture { pool: server.pool(), table: "webhook_events".to_owned(), store };
    assert_eq!(fixture.count("SELECT count(*) FROM events").await, 0, "it leaves nothing behind");
    fixture.run("ALTER SYSTEM SET synchronous_commit = off").await;
    fixture.run("SELECT pg_reload_conf()").await;
    eventually("the server has read it", async || {
        let report = fixture.store.check().await.expect("a report");
        report.warnings.iter().any(|warning| warning.contains("synchronous_commit"))
    })
    .await;
}
