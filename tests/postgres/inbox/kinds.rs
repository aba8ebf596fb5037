//! Kinds that a worker leaves out, or has no room for, cost it nothing, however many of their events are due.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use tower::ServiceExt;
use tower_webhook::queue::{KindLimits, LeaseRequest, Queue};
use tower_webhook::testing::TestSender;
use tower_webhook::{Outcome, WebhookLayer, Worker};

use crate::postgres::fixture::{Fixture, LEASE, eventually};
use crate::support::scheme;
use crate::support::servers::postgres::{PostgresServer, Settings};

const DUE: i64 = 20_000;

/// Puts events in that are due, `from` and up to `to`, each of the kind that two SQL expressions of `n` say.
async fn fill(fixture: &Fixture, (from, to): (i64, i64), endpoint: &str, event_type: &str) {
    fixture.run(&format!(
        "INSERT INTO events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint, arrival, endpoint,
                             due_at, head, body)
         SELECT format('%s.0:%s//%s', length({endpoint}), {endpoint}, n), {event_type}, 'accepted', '', now(), now(), 0, 0, n,
                {endpoint}, now() - interval '1 day' + n * interval '1 millisecond', '', ''
           FROM generate_series({from}, {to}) n"
    ))
    .await;
}

/// How many entries of the table's indexes were read so far, when no connection of a store is left to tell of more.
pub(crate) async fn entries_read(fixture: &Fixture) -> i64 {
    let stores = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tower-webhook%'";
    eventually("the stores' connections end", async || fixture.count(stores).await == 0).await;
    fixture
        .count("SELECT coalesce(sum(idx_tup_read), 0)::bigint FROM pg_stat_user_indexes WHERE relname = 'events'")
        .await
}

/// A server whose every connection is the test's.
pub(crate) async fn fixture_alone() -> (PostgresServer, Fixture) {
    let server = PostgresServer::start_with(Settings::default().set("fsync=off").set("autovacuum=off"));
    let fixture = Fixture::on(&server).await;
    (server, fixture)
}

#[tokio::test]
async fn lease_for_one_endpoint_does_not_walk_what_is_due_for_another() {
    let (_server, fixture) = fixture_alone().await;
    // Types as well, and of the endpoint that is asked for both with and without one.
    fill(&fixture, (1, DUE), "'/b'", "'type ' || n % 20").await;
    fill(&fixture, (DUE + 1, DUE + 6), "'/a'", "CASE WHEN n % 3 > 0 THEN 'type ' || n % 3 END").await;
    let store = fixture.another();
    let endpoints = ["/a".into()];
    let mut request = LeaseRequest::new(50, LEASE);
    request.endpoints = &endpoints;
    let leased = store.lease(&request).await.expect("an answer");
    let ids: Vec<_> = leased.iter().map(|leased| leased.key.id().to_owned()).collect();
    assert_eq!(ids, (DUE + 1..=DUE + 6).map(|n| n.to_string()).collect::<Vec<_>>(), "in their order");
    assert!(store.lease(&request).await.expect("an answer").is_empty());
    drop((store, leased));
    let read = entries_read(&fixture).await;
    assert!(read < 1_000, "{read} of {DUE}");
}

#[tokio::test]
async fn lease_does_not_walk_kinds_that_it_has_no_room_for() {
    let (_server, fixture) = fixture_alone().await;
    fill(&fixture, (1, DUE), "'/a'", "'slow'").await;
    fill(&fixture, (DUE + 1, 2 * DUE), "'/full'", "'type ' || n % 20").await;
    fill(&fixture, (2 * DUE + 1, 2 * DUE + 4), "'/a'", "'quick'").await;
    let store = fixture.another();
    let per_endpoint = KindLimits::new(50).with("/full", 0);
    for (slow, expected) in [(0, vec![2 * DUE + 1, 2 * DUE + 2]), (2, vec![1, 2, 2 * DUE + 3, 2 * DUE + 4])] {
        let per_type = KindLimits::new(2).with("slow", slow);
        let mut request = LeaseRequest::new(50, LEASE);
        (request.per_endpoint, request.per_type) = (Some(&per_endpoint), Some(&per_type));
        let leased = store.lease(&request).await.expect("an answer");
        let ids: Vec<_> = leased.iter().map(|leased| leased.key.id().to_owned()).collect();
        assert_eq!(ids, expected.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
    drop(store);
    let read = entries_read(&fixture).await;
    assert!(read < 2_000, "{read} of {}", 2 * DUE);
}

/// With so many kinds, a lease looks at some of them, and the next one at others.
#[tokio::test]
async fn kind_with_room_is_found_among_very_many_without() {
    let fixture = Fixture::new().await;
    fill(&fixture, (1, 9_000), "'/a'", "'type ' || n").await;
    fill(&fixture, (9_001, 9_001), "'/a'", "'quick'").await;
    let per_type = KindLimits::new(0).with("quick", 1);
    let mut request = LeaseRequest::new(10, LEASE);
    request.per_type = Some(&per_type);
    eventually("it is found", async || !fixture.store.lease(&request).await.expect("an answer").is_empty()).await;
}

/// Workers that have room for few of a kind lease so many, and put nothing back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_kinds_cost_no_updates() {
    const EVENTS: usize = 2_000;
    let fixture = Fixture::new().await;
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let handlers = Router::new().route(
        "/webhooks",
        post(move || async move {
            // So that some end while others begin, and there is room for a few again and again.
            let run = counted.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(std::time::Duration::from_millis(5 + run as u64 % 10)).await;
        }),
    );
    let app = handlers.clone().layer(WebhookLayer::inbox(scheme(), fixture.store.clone()));
    let ids: Vec<usize> = (0..EVENTS).collect();
    // No more at once than a layer admits.
    for ids in ids.chunks(200) {
        let accepted = ids.iter().map(|n| {
            let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"evt_{n}","type":"a"}}"#));
            app.clone().oneshot(delivery.request())
        });
        for answer in join_all(accepted).await {
            assert_eq!(answer.expect("a router cannot fail").extensions().get(), Some(&Outcome::Accepted));
        }
    }
    fixture
        .run(
            "CREATE SEQUENCE events_updates;
         CREATE FUNCTION events_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM nextval('events_updates'); RETURN NEW;
         END $$;
         CREATE TRIGGER count_updates AFTER UPDATE ON events FOR EACH ROW EXECUTE FUNCTION events_count()",
        )
        .await;
    let worker = Worker::new(fixture.store.clone(), handlers).concurrency(64).expect("a number");
    let worker = worker.concurrency_per_type(16).expect("a number");
    assert_eq!(worker.run_until_idle().await, EVENTS);
    assert_eq!(runs.load(Ordering::Relaxed), EVENTS);
    let updates = fixture.count("SELECT last_value FROM events_updates").await;
    assert!(updates <= EVENTS as i64 * 5 / 2, "{updates} for {EVENTS} events");
}

/// Two that choose the same events at the same time both get some.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_with_limits_share_what_is_due() {
    let fixture = Fixture::new().await;
    fill(&fixture, (1, 300), "'/a'", "'type ' || n % 3").await;
    let per_type = KindLimits::new(10);
    let leased = join_all([fixture.store.clone(), fixture.another(), fixture.another()].map(|store| {
        let per_type = &per_type;
        async move {
            let (mut ids, mut request) = (Vec::new(), LeaseRequest::new(20, LEASE));
            request.per_type = Some(per_type);
            loop {
                let leased = store.lease(&request).await.expect("an answer");
                match &*leased {
                    [] => return ids,
                    leased => ids.extend(leased.iter().map(|leased| leased.key.id().to_owned())),
                }
            }
        }
    }))
    .await;
    let mut all: Vec<u32> = leased.into_iter().flatten().map(|id| id.parse().expect("a number")).collect();
    all.sort_unstable();
    let left = fixture.count("SELECT count(*) FROM events WHERE state = 'accepted'").await;
    assert_eq!((all.len(), left), (300, 0), "each once");
    all.dedup();
    assert_eq!(all.len(), 300);
}
