//! A deploy: instances of the release before work on the table while an instance of this one migrates it, and afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use futures_util::future::join_all;
use tokio::sync::Notify;
use tower::ServiceExt;
use tower_webhook::queue::{EventState, LAPSED, Order, Queue};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store};
use tower_webhook::testing::TestSender;
use tower_webhook::testing::conformance::{self, Harness};
use tower_webhook::{HandlerError, Outcome, WebhookEvent, WebhookLayer};

use crate::postgres::fixture::{Fixture, LEASE, WEEK, eventually, key, shared};
use crate::postgres::inbox::queue::{ACCEPTED, KEPT, accept, accept_ordered, complete, lease_one, stored_request};
use crate::postgres::migrations::{missing, shape, table_of_version_1};
use crate::postgres::version_1::Version1;
use crate::support::scheme;
use crate::support::servers::postgres::{PostgresServer, Settings};

/// A receiver whose handler of `slow` keeps the transaction open that completes its event, until it is told.
fn receiver(store: impl Store + Clone, fixture: &Fixture, entered: &Arc<Notify>, go: &Arc<Notify>) -> Router {
    let (entered, go, pool) = (entered.clone(), go.clone(), fixture.pool.clone());
    let handler = move |event: WebhookEvent| {
        let (entered, go, pool) = (entered.clone(), go.clone(), pool.clone());
        async move {
            if event.id() == "slow" {
                let mut transaction = pool.begin().await?;
                event.complete_in(&mut *transaction).await?;
                entered.notify_one();
                go.notified().await;
                transaction.commit().await?;
            }
            Ok::<_, HandlerError>(())
        }
    };
    Router::new().route("/webhooks", post(handler)).layer(WebhookLayer::new(scheme(), store))
}

async fn deliver(app: &Router, id: &str) -> Option<Outcome> {
    let delivery = TestSender::new(scheme()).deliver(format!(r#"{{"id":"{id}"}}"#));
    let response = app.clone().oneshot(delivery.request()).await.expect("a router cannot fail");
    response.extensions().get().cloned()
}

/// Columns are added, which takes a brief lock on the table; an exactly-once transaction keeps the migration from it, and deliveries
/// that come meanwhile wait behind the migration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_delivery_is_answered_while_columns_are_added_and_a_transaction_is_open() {
    let settings = Settings::default().set("fsync=off").set("log_lock_waits=on").set("deadlock_timeout=1ms");
    let server = PostgresServer::start_with(settings.set("log_line_prefix=%a: "));
    let old = table_of_version_1(&server, "events").await;
    let (entered, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let app = receiver(Version1::on(&server, &old.table), &old, &entered, &go);
    let slow = tokio::spawn({
        let app = app.clone();
        async move { deliver(&app, "slow").await }
    });
    entered.notified().await;

    let store = old.store.clone();
    let migrating = tokio::spawn(async move { store.migrate().await });
    let (seen, number) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let delivering = (0..3).map(|_| {
        let (app, seen, number) = (app.clone(), seen.clone(), number.clone());
        tokio::spawn(async move {
            while !seen.load(Ordering::Relaxed) {
                let id = format!("evt_{}", number.fetch_add(1, Ordering::Relaxed));
                assert_eq!(deliver(&app, &id).await, Some(Outcome::Completed), "{id}");
                assert_eq!(deliver(&app, &id).await, Some(Outcome::Duplicate), "{id}");
            }
        })
    });
    let delivering: Vec<_> = delivering.collect();
    eventually("the migration gave up thrice, and a claim has waited behind it", async || {
        let log = server.log();
        let gave_up = log.lines().filter(|line| line.contains("STATEMENT") && line.contains("ADD COLUMN")).count();
        let waited = log.lines().any(|line| line.starts_with("version 1 claims") && line.contains("still waiting for"));
        // One that failed is told at once.
        gave_up >= 3 && waited || delivering.iter().any(tokio::task::JoinHandle::is_finished)
    })
    .await;
    assert!(!migrating.is_finished(), "it waited all the time");
    seen.store(true, Ordering::Relaxed);
    for delivered in join_all(delivering).await {
        delivered.expect("every delivery was answered");
    }
    go.notify_one();
    assert_eq!(slow.await.expect("no panic"), Some(Outcome::Completed));
    migrating.await.expect("no panic").expect("a whole table");
    assert_eq!(missing(&old, &shape(&Fixture::new().await).await).await, [""; 0]);

    let new = receiver(old.store.clone(), &old, &entered, &go);
    for (one, other) in [(&app, &new), (&new, &app)] {
        let id = format!("after_{}", number.fetch_add(1, Ordering::Relaxed));
        assert_eq!(deliver(one, &id).await, Some(Outcome::Completed));
        assert_eq!(deliver(other, &id).await, Some(Outcome::Duplicate), "of the other release");
    }
}

/// The release before, on tables of this one.
#[derive(Default)]
struct Migrated(std::sync::Mutex<Option<Arc<Fixture>>>);

impl Harness for Migrated {
    type Store = Version1;

    async fn store(&self) -> Version1 {
        let fixture = Arc::new(Fixture::new().await);
        *self.0.lock().expect("no panic under the lock") = Some(fixture.clone());
        Version1::on(shared(), &fixture.table)
    }

    async fn pass(&self, time: Duration) {
        let fixture = self.0.lock().expect("no panic under the lock").clone();
        fixture.expect("a store before time passes").pass(time).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_of_the_release_before_keep_the_contract_on_a_migrated_table() {
    conformance::store().run(&Migrated::default()).await;
}

#[tokio::test]
async fn claims_of_one_release_are_known_to_the_other() {
    let fixture = Fixture::new().await;
    let (new, old) = (&fixture.store as &dyn Store, &Version1::on(shared(), &fixture.table) as &dyn Store);
    for (name, one, other) in [("new", new, old), ("old", old, new)] {
        let (event, token) = (key(name), ClaimToken::random());
        let (mine, theirs) = (fixture.claim(&event, token), fixture.claim(&event, ClaimToken::random()));
        assert_eq!(one.claim(&mine).await.expect("an answer"), Claim::Fresh { attempt: Some(1) });
        assert_eq!(other.claim(&theirs).await.expect("an answer"), Claim::InFlight { same_body: true });
        assert_eq!(one.release(&event, token).await.expect("an answer"), Hold::Held);
        assert_eq!(other.claim(&theirs).await.expect("an answer"), Claim::Fresh { attempt: Some(2) });
        let done = Completion::succeeded("200 OK", WEEK);
        assert_eq!(one.complete(&mine, &done).await.expect("an answer"), Hold::Lost);
        assert_eq!(other.complete(&theirs, &done).await.expect("an answer"), Hold::Held);
        assert_eq!(one.claim(&mine).await.expect("an answer"), Claim::Completed { same_body: true });
    }
}

#[tokio::test]
async fn events_of_an_inbox_go_from_one_release_to_the_other() {
    let fixture = Fixture::new().await;
    let (new, old) = (&fixture.store, Version1::on(shared(), &fixture.table));
    let done = Completion::succeeded("200 OK", WEEK);

    // Accepted by the release before, and run by this one.
    let event = key("by_old");
    let request = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
    assert_eq!(old.accept(&request, &stored_request(&event)).await, KEPT);
    assert_eq!(accept(new, &event).await, ACCEPTED);
    let leased = lease_one(new).await;
    assert_eq!((&leased.key, leased.attempt, &leased.request), (&event, 1, &stored_request(&event)));
    complete(new, &leased).await;
    assert_eq!(old.accept(&request, &stored_request(&event)).await, Claim::Completed { same_body: true });

    // Accepted by this one; leased and released, retried and completed by the one before.
    let event = key("by_new");
    assert_eq!(accept(new, &event).await, KEPT);
    let one = async |attempts: i32| {
        let mut leased = old.lease(9, LEASE).await;
        let leased = leased.pop().expect("the event");
        assert_eq!((&leased.key, leased.attempts, &*leased.body), (&event, attempts, &*stored_request(&event).body));
        leased.token
    };
    let token = one(1).await;
    assert_eq!(old.release(&event, token).await.expect("an answer"), Hold::Held);
    let token = one(1).await;
    let claim = ClaimRequest::new(&event, token, LEASE);
    assert_eq!(old.renew(&claim).await.expect("an answer"), Hold::Held);
    let retry = tower_webhook::store::Ending::Retry { after: Duration::ZERO, reason: "flaky" };
    assert_eq!(Store::settle(&old, &claim, retry).await.expect("an answer"), Hold::Held);
    // Whoever leased it is gone.
    one(2).await;
    fixture.pass(2 * LEASE).await;
    let leased = lease_one(new).await;
    assert_eq!((&leased.key, leased.attempt), (&event, 3));
    assert_eq!(new.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    let token = one(3).await;
    let claim = ClaimRequest::new(&event, token, LEASE);
    assert_eq!(old.complete(&claim, &done).await.expect("an answer"), Hold::Held);
    let kept = new.get(&event).await.expect("an answer").expect("a record");
    let failures: Vec<&str> = kept.failures.iter().map(|failure| &*failure.reason).collect();
    assert_eq!((kept.state, kept.attempts, &*failures), (EventState::Completed, 3, &["flaky", LAPSED][..]));
    assert_eq!(accept(new, &event).await, Claim::Completed { same_body: true });
}

#[tokio::test]
async fn order_holds_across_releases() {
    let fixture = Fixture::new().await;
    let (new, old) = (&fixture.store, Version1::on(shared(), &fixture.table));
    let [first, second, third] = ["first", "second", "third"].map(key);
    accept_ordered(new, &first, Order::of("resource")).await;
    let request = ClaimRequest::new(&second, ClaimToken::random(), LEASE);
    assert_eq!(old.accept(&request, &stored_request(&second).ordered(Order::of("resource"))).await, KEPT);
    accept_ordered(new, &third, Order::of("resource")).await;

    let leased = old.lease(9, LEASE).await;
    assert_eq!(leased.iter().map(|leased| &leased.key).collect::<Vec<_>>(), [&first]);
    assert!(crate::postgres::inbox::queue::lease(new, 9).await.is_empty(), "one at a time");
    let done = Completion::succeeded("200 OK", WEEK);
    let claim = ClaimRequest::new(&first, leased[0].token, LEASE);
    assert_eq!(old.complete(&claim, &done).await.expect("an answer"), Hold::Held);

    let leased = lease_one(new).await;
    assert_eq!(leased.key, second);
    assert_eq!(old.lease(9, LEASE).await, []);
    complete(new, &leased).await;
    eventually("the last event is promoted", async || {
        fixture.count("SELECT count(*) FROM events WHERE due_at <= now()").await == 1
    })
    .await;
    let leased = old.lease(9, LEASE).await.pop().expect("the third one");
    assert_eq!(leased.key, third);

    // The release before makes an event leasable that this one has accepted: due since it arrived.
    let fourth = key("fourth");
    accept_ordered(new, &fourth, Order::of("resource")).await;
    let claim = ClaimRequest::new(&third, leased.token, LEASE);
    assert_eq!(old.complete(&claim, &done).await.expect("an answer"), Hold::Held);
    let due = "SELECT count(*) FROM events WHERE state = 'accepted' AND due_at = lease_until AND due_at <= now()";
    assert_eq!(fixture.count(due).await, 1);
    assert_eq!(lease_one(new).await.key, fourth);
}
