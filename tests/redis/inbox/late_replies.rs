//! Answers to leases that come after the one who asked has given up, or not at all.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tower_webhook::queue::{LeaseRequest, Leased, Queue};
use tower_webhook::store::{Completion, Hold, RedisStore, Store, StoreErrorKind};
use tower_webhook::worker::RetryPolicy;
use tower_webhook::{WebhookEvent, Worker};

use super::fixture::{InboxFixture, LEASE, PREFIX, RETENTION, accept_all, ids, store_on};
use crate::redis::fixture::{pool, pool_of};
use crate::redis::receiver::{eventually, key};
use crate::support::proxy::{Proxy, Weather};
use crate::support::servers::redis::RedisServer;

/// The attempts of each event.
type Runs = Arc<Mutex<BTreeMap<String, Vec<Option<u32>>>>>;

/// A store that soon gives up waiting.
fn hasty(server: &RedisServer) -> RedisStore {
    RedisStore::builder(pool(server)).prefix(PREFIX).timeout(Duration::from_millis(300)).build()
}

/// A lease that would end in an hour: what is leased soon after was put back.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_after_the_stores_timeout_are_put_back() {
    let server = RedisServer::start();
    let (store, hasty) = (store_on(&server), hasty(&server));
    let hour = LeaseRequest::new(10, Duration::from_secs(3600));
    assert!(hasty.lease(&hour).await.expect("an answer").is_empty(), "connected before");
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    server.freeze();
    let error = hasty.lease(&hour).await.expect_err("the server stands still");
    assert_eq!(error.kind(), StoreErrorKind::TimedOut);
    server.thaw();
    five_are_leased_for_the_first_time(&store).await;
}

async fn five_are_leased_for_the_first_time(store: &RedisStore) -> Vec<Leased> {
    let all = Mutex::new(Vec::new());
    eventually("all of them are leased", async || {
        let leased = store.lease(&LeaseRequest::new(10, LEASE)).await.expect("an answer");
        let mut all = all.lock().expect("no panic");
        all.extend(leased);
        all.len() == 5
    })
    .await;
    let mut all = all.into_inner().expect("no panic");
    assert!(all.iter().all(|leased| leased.attempt == 1 && !leased.started), "{all:?}");
    all.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(ids(&all), ["0", "1", "2", "3", "4"]);
    all
}

/// A store behind a proxy, with one connection, which is there. The server knows the script of leases.
async fn store_behind(proxy: &Proxy) -> RedisStore {
    let pool = pool_of(&format!("redis://{}/", proxy.address));
    let store = RedisStore::builder(pool).prefix(PREFIX).connections(1).timeout(Duration::from_secs(60)).build();
    assert!(store.lease(&LeaseRequest::new(1, LEASE)).await.expect("an answer").is_empty());
    store
}

/// Ready when the server has leased five events.
async fn five_run(server: &RedisServer) {
    let running = format!("{PREFIX}inbox:running");
    eventually("the server has leased them", async || server.command(&["ZCARD", &running]) == "5\n").await;
}

/// The server leases the events for an hour, and the connection breaks before the reply has passed. The store asks again on another
/// connection, and the events that it does not know of are put back.
#[tokio::test(flavor = "multi_thread")]
async fn events_whose_connection_breaks_before_the_reply_run_at_their_first_attempt() {
    let server = RedisServer::start();
    let inbox = InboxFixture::on(&server);
    let proxy = Proxy::before(server.address()).await;
    let store = store_behind(&proxy).await;
    for n in 0..5 {
        inbox.deliver(&n.to_string()).await;
    }
    let runs: Runs = Arc::default();
    let worker = noting_worker(&store, &runs);
    proxy.set(Weather::SwallowReplies);
    let working = tokio::spawn(worker.run(std::future::pending()));
    five_run(&server).await;
    proxy.cut();
    eventually("all are completed", async || inbox.store.counts().await.is_ok_and(|counts| counts.completed == 5))
        .await;
    working.abort();
    for n in 0..5 {
        let id = n.to_string();
        assert_eq!(runs.lock().expect("no panic").get(&id), Some(&vec![Some(1)]), "{id}");
        let kept = inbox.kept(&id).await;
        assert_eq!((kept.attempts, kept.failures.len()), (1, 0), "no lease lapsed: {kept:?}");
    }
}

/// The server is out of reach for longer than the one who asked waits.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_lost_lease_are_put_back_when_the_server_is_in_reach_again() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let (store, cut_off) = (store_on(&server), store_behind(&proxy).await);
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    proxy.set(Weather::SwallowReplies);
    let hour = LeaseRequest::new(10, Duration::from_secs(3600));
    let breaking = async {
        five_run(&server).await;
        proxy.set(Weather::Cut);
    };
    let (leased, ()) = tokio::join!(cut_off.lease(&hour), breaking);
    assert_eq!(leased.expect_err("no connection").kind(), StoreErrorKind::Unavailable);
    assert_eq!(store.counts().await.expect("an answer").running, 5, "nobody can put them back");
    proxy.set(Weather::Fair);
    five_are_leased_for_the_first_time(&store).await;
}

/// A store behind a proxy, with one connection, which is there, that soon gives up waiting.
async fn hasty_behind(proxy: &Proxy) -> RedisStore {
    let pool = pool_of(&format!("redis://{}/", proxy.address));
    let store = RedisStore::builder(pool).prefix(PREFIX).connections(1).timeout(Duration::from_millis(300)).build();
    eventually("it is connected", async || store.lease(&LeaseRequest::new(1, LEASE)).await.is_ok()).await;
    store
}

/// The connection stays open, and nothing comes by it. At the store's timeout the events are put back by another one. When the reply
/// comes after all, they are leased again, and that lease is not touched.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_lease_whose_reply_does_not_come_by_an_open_connection_are_put_back_at_the_timeout() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let (store, stuck) = (store_on(&server), hasty_behind(&proxy).await);
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    proxy.leave_behind(Weather::HoldReplies);
    let accepted = record_of_first(&server);
    let error = stuck.lease(&LeaseRequest::new(10, Duration::from_secs(3600))).await.expect_err("no reply");
    assert_eq!(error.kind(), StoreErrorKind::TimedOut);
    eventually("the server has leased them", async || record_of_first(&server) != accepted).await;
    let leased = five_are_leased_for_the_first_time(&store).await;
    proxy.set_behind(Weather::Fair);
    eventually("its store works again", async || {
        stuck.lease(&LeaseRequest::new(10, LEASE)).await.is_ok_and(|none| none.is_empty())
    })
    .await;
    complete_all(&store, &leased).await;
}

/// The request is under way for longer than a search goes on after a connection has broken, and its reply never comes.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_lease_that_reaches_the_server_late_are_found_by_a_later_look() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let (store, stuck) = (store_on(&server), hasty_behind(&proxy).await);
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    proxy.leave_behind(Weather::HoldRequests);
    let accepted = record_of_first(&server);
    let error = stuck.lease(&LeaseRequest::new(10, Duration::from_secs(3600))).await.expect_err("no reply");
    assert_eq!(error.kind(), StoreErrorKind::TimedOut);
    eventually("it was looked for them often", async || looks(&server) > 10).await;
    assert_eq!(store.counts().await.expect("an answer").waiting, 5, "the request has not come");
    proxy.set_behind(Weather::SwallowReplies);
    eventually("the server has leased them", async || record_of_first(&server) != accepted).await;
    five_are_leased_for_the_first_time(&store).await;
}

/// The record of one of five events, which is another one for good once the event was leased.
fn record_of_first(server: &RedisServer) -> String {
    server.command(&["GET", &format!("{PREFIX}{}", key("0"))])
}

/// How often the server was asked to look through the events that run.
fn looks(server: &RedisServer) -> usize {
    let stats = server.command(&["INFO", "commandstats"]);
    let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_zscan:calls="));
    calls.and_then(|calls| calls.split(',').next()).map_or(0, |calls| calls.parse().expect("a number"))
}

/// A reply that takes its time, and comes while the worker still waits, is the worker's: nobody looks for its events.
#[tokio::test(flavor = "multi_thread")]
async fn events_whose_reply_is_slow_belong_to_the_worker_that_waits() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let (store, slow) = (store_on(&server), store_behind(&proxy).await);
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    proxy.set(Weather::HoldReplies);
    let hour = LeaseRequest::new(10, Duration::from_secs(3600));
    let passing = async {
        five_run(&server).await;
        proxy.set(Weather::Fair);
    };
    let (leased, ()) = tokio::join!(slow.lease(&hour), passing);
    complete_all(&store, &leased.expect("an answer")).await;
    assert_eq!(looks(&server), 0);
}

async fn complete_all(store: &RedisStore, leased: &[Leased]) {
    assert_eq!(leased.len(), 5);
    for leased in leased {
        let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
}

/// Others run beside the events of the lost lease, more than one script looks at, and keep their leases.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_lost_lease_are_found_among_many_that_run() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.address()).await;
    let (store, cut_off) = (store_on(&server), store_behind(&proxy).await);
    const OTHERS: usize = 320;
    accept_all(&store, (0..OTHERS).map(|n| format!("other {n}"))).await;
    let (mut others, mut hour) = (Vec::new(), LeaseRequest::new(64, Duration::from_secs(3600)));
    while others.len() < OTHERS {
        others.extend(store.lease(&hour).await.expect("an answer"));
    }
    accept_all(&store, (0..5).map(|n| n.to_string())).await;
    proxy.set(Weather::SwallowReplies);
    hour.limit = 10;
    let breaking = async {
        let running = format!("{PREFIX}inbox:running");
        let all = format!("{}\n", OTHERS + 5);
        eventually("the server has leased them", async || server.command(&["ZCARD", &running]) == all).await;
        proxy.set(Weather::Cut);
    };
    let (leased, ()) = tokio::join!(cut_off.lease(&hour), breaking);
    assert_eq!(leased.expect_err("no connection").kind(), StoreErrorKind::Unavailable);
    proxy.set(Weather::Fair);
    five_are_leased_for_the_first_time(&store).await;
    for other in &others {
        assert_eq!(store.release(&other.key, other.token).await.expect("an answer"), Hold::Held);
    }
}

/// A worker that gives every event one attempt, and a lease of an hour.
fn noting_worker(store: &RedisStore, runs: &Runs) -> Worker<Router> {
    let noted = runs.clone();
    let handlers = Router::new().route(
        "/webhooks",
        post(move |event: WebhookEvent| async move {
            noted.lock().expect("no panic").entry(event.id().to_owned()).or_default().push(event.attempt());
        }),
    );
    Worker::new(store.clone(), handlers)
        .retries(RetryPolicy::new().max_attempts(1))
        .lease(Duration::from_secs(3600))
        .and_then(|worker| worker.poll_every(Duration::from_millis(20)))
        .expect("a configuration")
}

/// The worker polls while the server stands still again and again. With a single attempt, an event that was leased and never handed over
/// would be a dead letter without one run.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_stands_still_costs_no_event_its_only_attempt() {
    let server = RedisServer::start();
    let inbox = InboxFixture::on(&server);
    let store = hasty(&server);
    let runs: Runs = Arc::default();
    let worker = noting_worker(&store, &runs);
    let working = tokio::spawn(worker.run(std::future::pending()));
    const EVENTS: usize = 60;
    for n in 0..EVENTS {
        inbox.deliver(&n.to_string()).await;
        if n % 10 == 9 {
            server.freeze();
            // As long as it takes others to give up.
            for _ in 0..2 {
                assert!(store.counts().await.is_err(), "the server stands still");
            }
            server.thaw();
        }
    }
    eventually("all have run", async || runs.lock().expect("no panic").len() == EVENTS).await;
    eventually("all are completed", async || {
        store.counts().await.is_ok_and(|counts| counts.completed == EVENTS as u64)
    })
    .await;
    working.abort();
    for (id, attempts) in &*runs.lock().expect("no panic") {
        assert_eq!(attempts, &[Some(1)], "{id}");
    }
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.dead, counts.waiting, counts.running), (0, 0, 0));
}
