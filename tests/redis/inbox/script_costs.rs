//! No script keeps the server from others for long, whatever the inbox holds: the number of commands that a script calls, and of bytes
//! that pass through it, have bounds, and do not grow with what is kept. Time is not measured here, since on a busy machine it says more of
//! the machine: `cargo bench --bench inbox -- slowlog` prints it.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use tokio::task::JoinSet;
use tower_webhook::EventKey;
use tower_webhook::queue::{EventState, Filter, KindLimits, LeaseRequest, Leased, Page, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};

use super::fixture::{LEASE, PREFIX, RETENTION, now, stored_request};
use crate::redis::fixture::pool;
use crate::redis::receiver::eventually;
use crate::support::servers::redis::RedisServer;
use crate::support::servers::redis_scripts::{Monitor, Run, most};

/// How many commands a run of each script may call. A call takes the server a few microseconds.
const MOST_CALLS: [(&str, usize); 16] = [
    ("browse", 201),
    ("bury", 20),
    ("complete", 20),
    ("counts", 120),
    ("discard", 650),
    ("enqueue", 460),
    ("find_leased", 300),
    ("forget", 850),
    ("get", 10),
    ("lease", 1400),
    ("purge", 10),
    ("release", 20),
    ("renew", 10),
    ("requeue", 750),
    ("sweep", 1800),
    ("waiting", 10),
];

/// How many bytes may pass through a script beside requests: arguments, names of keys, and what is known of events.
const SMALL_CHANGE: usize = 100 * KIB;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn store_on(server: &RedisServer) -> RedisStore {
    RedisStore::builder(pool(server)).prefix(PREFIX).timeout(Duration::from_secs(60)).build()
}

/// No run calls more commands than its script may, nor passes more bytes than these.
fn check(runs: &[Run], bytes: usize) {
    for run in most(runs).values() {
        let (_, calls) = MOST_CALLS.iter().find(|(name, _)| *name == run.name).expect("a bound for every script");
        assert!(run.calls <= *calls, "more than {calls} calls: {run:?}");
        assert!(run.bytes <= bytes, "more than {bytes} bytes: {run:?}");
    }
}

/// The most that any run of this script called.
fn calls(runs: &[Run], name: &str) -> usize {
    most(runs).get(name).unwrap_or_else(|| panic!("{name} has not run")).calls
}

async fn accept_request(store: &RedisStore, id: &str, event_type: &str, stored_request: &StoredRequest) {
    let key = EventKey::new("/hooks", None, id);
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(Some(event_type));
    let claim = store.enqueue(&claim, stored_request).await;
    assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
}

/// Accepts events of these types, many at a time.
async fn accept_of_types(store: &RedisStore, types: impl Iterator<Item = String>) {
    let mut accepting = JoinSet::new();
    for (n, event_type) in types.enumerate() {
        if accepting.len() >= 256 {
            accepting.join_next().await.expect("a task").expect("no panic");
        }
        let store = store.clone();
        accepting.spawn(async move { accept_request(&store, &n.to_string(), &event_type, &stored_request("x")).await });
    }
    accepting.join_all().await;
}

async fn lease(store: &RedisStore, limit: usize) -> Vec<Leased> {
    store.lease(&LeaseRequest::new(limit, LEASE)).await.expect("an answer")
}

async fn put_back(store: &RedisStore, leased: &[Leased]) {
    for leased in leased {
        assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    }
}

async fn complete(store: &RedisStore, leased: &[Leased], retention: Duration) {
    for leased in leased {
        let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", retention)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
}

/// Events of the size that the largest sender sends.
#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_pass_through_no_script() {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    let body = vec![b'x'; 25 * MIB];
    let accept = async |id: &str, body: &[u8]| {
        accept_request(&store, id, "test.event", &StoredRequest::new("a head", body.to_vec(), now())).await;
    };
    accept("small", b"{}").await;
    for n in 0..3 {
        accept(&n.to_string(), &body).await;
    }
    for n in 3..20 {
        accept(&n.to_string(), &body[..MIB]).await;
    }
    let mut runs = monitor.runs();
    assert_eq!(store.list(&Filter::all(), &Page::first(100)).await.expect("an answer").len(), 21);
    assert_eq!(store.counts().await.expect("an answer").waiting, 21);
    let mut all = 0;
    while all < 21 {
        let leased = lease(&store, 64).await;
        // While the requests are there, the monitor knows how long they are.
        runs.extend(monitor.runs());
        let bytes: usize = leased.iter().map(|leased| leased.request.body.len()).sum();
        assert!(bytes < 30 * MIB, "{bytes} bytes at a time");
        for leased in &leased {
            let length = match leased.key.id() {
                "small" => 2,
                "0" | "1" | "2" => 25 * MIB,
                _ => MIB,
            };
            assert_eq!(leased.request.body.len(), length, "{}", leased.key);
        }
        complete(&store, &leased, RETENTION).await;
        all += leased.len();
    }
    store.requeue(&Filter::all(), true).await.map(drop).expect("an answer");
    store.discard(&Filter::all(), RETENTION).await.expect("an answer");
    runs.extend(monitor.runs());
    store.forget(&Filter::all()).await.expect("an answer");
    runs.extend(monitor.runs());
    check(&runs, SMALL_CHANGE);
    for name in ["enqueue", "browse", "counts", "lease", "complete", "requeue", "discard", "forget"] {
        calls(&runs, name);
    }
    eventually("nothing is left", async || server.keys().is_empty()).await;
}

/// Bodies that are small enough to come with an event, and many of them.
#[tokio::test(flavor = "multi_thread")]
async fn small_bodies_pass_through_scripts_some_at_a_time() {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    let mut accepting = JoinSet::new();
    for n in 0..256 {
        let store = store.clone();
        let stored_request = StoredRequest::new("a head", vec![b'x'; if n < 128 { 15 * KIB } else { 60 * KIB }], now());
        accepting.spawn(async move { accept_request(&store, &n.to_string(), "test.event", &stored_request).await });
    }
    accepting.join_all().await;
    check(&monitor.runs(), 2 * MIB + SMALL_CHANGE);
    let mut all = 0;
    while all < 256 {
        let leased = lease(&store, 64).await;
        let runs = monitor.runs();
        check(&runs, 512 * KIB + SMALL_CHANGE);
        complete(&store, &leased, RETENTION).await;
        all += leased.len();
    }
}

/// A duplicate of a large event is known by its record: its body is not written for that.
#[tokio::test(flavor = "multi_thread")]
async fn large_duplicate_is_not_written() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let key = EventKey::new("/hooks", None, "evt_1");
    let large = StoredRequest::new("a head", vec![b'x'; MIB], now());
    for n in 0..3 {
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        let claim = store.enqueue(&claim, &large).await.expect("an answer");
        assert_eq!(matches!(claim, Claim::Fresh { .. }), n == 0, "{claim:?}");
        assert_eq!(server.keys().iter().filter(|key| key.contains("inbox:request:")).count(), 1);
    }
    let requests = server.command(&["KEYS", "*inbox:request:*"]);
    assert_eq!(server.command(&["PTTL", requests.trim()]), "-1\n", "it is kept until the event has been run");
}

/// What accepting one event, leasing 64, a page of a list, counting, and purging 500 call with so many events that wait.
async fn calls_with(events: usize) -> [usize; 5] {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    accept_of_types(&store, (0..events).map(|_| "test.event".to_owned())).await;
    check(&monitor.runs(), 2 * MIB);
    accept_request(&store, "last", "test.event", &stored_request("x")).await;
    let mut runs = monitor.runs();
    assert_eq!(store.list(&Filter::all(), &Page::first(100)).await.expect("an answer").len(), 100);
    store.counts().await.map(drop).expect("an answer");
    let leased = lease(&store, 64).await;
    assert_eq!(leased.len(), 64);
    runs.extend(monitor.runs());
    let measured = ["enqueue", "lease", "browse", "counts"].map(|name| calls(&runs, name));
    check(&runs, SMALL_CHANGE);
    // All of them are completed before any is purged, so that a lease leaves most of it to a script of its own.
    let mut all = leased;
    while all.len() < 640 {
        all.extend(lease(&store, 64).await);
    }
    complete(&store, &all, Duration::from_millis(1)).await;
    let watched = Mutex::new((monitor, Vec::new()));
    eventually("some are purged", async || {
        put_back(&store, &lease(&store, 1).await).await;
        let (monitor, runs) = &mut *watched.lock().expect("no panic");
        runs.extend(monitor.runs());
        runs.iter().any(|run: &Run| run.name == "purge")
    })
    .await;
    let (_, runs) = watched.into_inner().expect("no panic");
    check(&runs, SMALL_CHANGE);
    let [accept, lease, browse, counts] = measured;
    [accept, lease, browse, counts, calls(&runs, "purge")]
}

/// Twenty times as many events cost no script one command more.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_call_as_many_commands_with_any_number_of_events() {
    assert_eq!(calls_with(1_000).await, calls_with(20_000).await);
}

/// What accepting one event and a page of a list call with so many kinds, and what a lease calls where all but ten have no room. A lease
/// of 64 events costs so much for each of them, and so much for each of their kinds, and nothing for other kinds.
async fn calls_with_kinds(kinds: usize) -> [usize; 3] {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    // One after the other: kinds whose first events are of the same millisecond are all looked at.
    for n in 0..3 * kinds {
        accept_request(&store, &n.to_string(), &format!("type {}", n % kinds), &stored_request("x")).await;
    }
    assert_eq!(store.list(&Filter::all(), &Page::first(100)).await.expect("an answer").len(), 100);
    store.counts().await.map(drop).expect("an answer");
    let leased = lease(&store, 64).await;
    assert_eq!(leased.len(), 64);
    let runs = monitor.runs();
    check(&runs, SMALL_CHANGE);
    let leased_kinds: BTreeSet<_> = leased.iter().map(|leased| leased.event_type.as_deref()).collect();
    let (of_lease, most) = (calls(&runs, "lease"), 4 * 64 + 4 * leased_kinds.len() + 40);
    assert!(of_lease <= most, "{of_lease} calls for 64 events of {} kinds, {kinds} kinds in all", leased_kinds.len());
    put_back(&store, &leased).await;
    let full = (0..kinds - 10).fold(KindLimits::new(1), |limits, n| limits.with(format!("type {n}"), 0));
    let mut request = LeaseRequest::new(64, LEASE);
    request.per_type = Some(&full);
    monitor.runs();
    assert_eq!(store.lease(&request).await.expect("an answer").len(), 10, "one of each that has room");
    let runs_with_limits = monitor.runs();
    check(&runs_with_limits, SMALL_CHANGE);
    [calls(&runs, "enqueue"), calls(&runs, "browse"), calls(&runs_with_limits, "lease")]
}

/// Also where most of them have no room.
#[tokio::test(flavor = "multi_thread")]
async fn scripts_call_as_many_commands_with_any_number_of_kinds() {
    let ([accept, browse, lease], few) = (calls_with_kinds(1000).await, calls_with_kinds(100).await);
    assert_eq!([accept, browse], few[..2]);
    // The names of kinds without room are read 128 at a time.
    assert!(lease <= few[2] + 1000 / 128 + 2, "{lease} calls with 1,000 kinds, and {} with 100", few[2]);
}

/// A worker has died: the leases of many events have lapsed.
#[tokio::test(flavor = "multi_thread")]
async fn lapsed_leases_are_found_some_at_a_time() {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    accept_of_types(&store, (0..640).map(|n| format!("type {}", n % 100))).await;
    let mut all = Vec::new();
    while all.len() < 640 {
        all.extend(lease(&store, 64).await);
    }
    let running = format!("{PREFIX}inbox:running");
    for number in server.command(&["ZRANGE", &running, "0", "-1"]).lines() {
        server.command(&["ZADD", &running, "1", number]);
    }
    monitor.runs();
    let again = lease(&store, 64).await;
    assert!(again.len() == 64 && again.iter().all(|leased| leased.attempt == 2), "{again:?}");
    let runs = monitor.runs();
    check(&runs, SMALL_CHANGE);
}

/// A worker renews an event whose record somebody deleted: the server looks at some of those that run, and no more.
#[tokio::test(flavor = "multi_thread")]
async fn event_without_its_record_is_looked_for_among_some_that_run() {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    accept_of_types(&store, (0..640).map(|_| "test.event".to_owned())).await;
    let mut all = Vec::new();
    while all.len() < 640 {
        all.extend(lease(&store, 64).await);
    }
    let last = all.last().expect("an event");
    server.command(&["DEL", &format!("{PREFIX}{}", last.key)]);
    monitor.runs();
    assert_eq!(store.renew(&last.claim(LEASE)).await.expect("an answer"), Hold::Lost);
    let runs = monitor.runs();
    assert!(calls(&runs, "renew") <= 510, "{runs:?}");
    assert!(runs.iter().all(|run| run.bytes <= 2 * SMALL_CHANGE), "{runs:?}");
}

/// A worker that has nothing to do asks every second.
#[tokio::test(flavor = "multi_thread")]
async fn idle_lease_costs_the_same_with_any_number_of_future_retries() {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    const TYPES: usize = 3000;
    let idle = async |monitor: &mut Monitor<'_>| {
        monitor.runs();
        assert!(lease(&store, 64).await.is_empty());
        store.counts().await.map(drop).expect("an answer");
        let runs = monitor.runs();
        check(&runs, SMALL_CHANGE);
        ["lease", "counts"].map(|name| calls(&runs, name))
    };
    let [lease_of_none, counts_of_none] = idle(&mut monitor).await;
    accept_of_types(&store, (0..TYPES).map(|n| format!("type {n}"))).await;
    let mut retried = 0;
    while retried < TYPES {
        let leased = lease(&store, 256).await;
        let mut retries = JoinSet::new();
        retried += leased.len();
        for leased in leased {
            let store = store.clone();
            retries.spawn(async move { store.retry(&leased.claim(LEASE), RETENTION, "later").await });
        }
        retries.join_all().await.into_iter().for_each(|hold| assert_eq!(hold.expect("an answer"), Hold::Held));
    }
    let [lease, counts] = idle(&mut monitor).await;
    assert_eq!(lease, lease_of_none);
    // It looks for the oldest one that is due, once it knows that some are waiting.
    assert_eq!(counts, counts_of_none + 2);
}

/// What an operator does to many events is done to some at a time.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_on_many_events_are_many_short_scripts() {
    let server = RedisServer::start();
    let (store, mut monitor) = (store_on(&server), Monitor::on(&server));
    const EVENTS: usize = 2000;
    accept_of_types(&store, (0..EVENTS).map(|n| format!("type {}", n % 7))).await;
    let mut dead = 0;
    while dead < EVENTS {
        let leased = lease(&store, 256).await;
        let mut burials = JoinSet::new();
        dead += leased.len();
        for leased in leased {
            let store = store.clone();
            burials.spawn(async move { store.bury(&leased.claim(LEASE), "hopeless").await });
        }
        burials.join_all().await.into_iter().for_each(|hold| assert_eq!(hold.expect("an answer"), Hold::Held));
    }
    let dead = Filter::all().state(EventState::Dead);
    assert_eq!(store.list(&dead, &Page::first(EVENTS)).await.expect("an answer").len(), EVENTS);
    assert_eq!(store.requeue(&dead, false).await.expect("an answer").events, EVENTS as u64);
    assert_eq!(store.discard(&Filter::all(), RETENTION).await.expect("an answer"), EVENTS as u64);
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.completed, counts.waiting, counts.dead), (EVENTS as u64, 0, 0));
    assert_eq!(store.forget(&Filter::all()).await.expect("an answer"), EVENTS as u64);
    let runs = monitor.runs();
    check(&runs, 2 * MIB);
    for name in ["browse", "requeue", "discard", "forget"] {
        let count = runs.iter().filter(|run| run.name == name).count();
        assert!(count >= EVENTS / 100, "{name} has run {count} times");
    }
    assert_eq!(server.keys().len(), 0);
}
