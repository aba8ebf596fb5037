//! No script keeps the server from others for long, whatever the inbox holds: the server's own log of slow commands says so, and the
//! number of commands that a script calls does not grow with what is kept.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_webhook::EventKey;
use tower_webhook::inbox::{EventState, Filter, Inbox, KindLimits, LeaseRequest, Leased, Page, Parcel};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};

use super::site::{LEASE, PREFIX, RETENTION, now, parcel};
use crate::harness::pool;
use crate::receiver::eventually;
use crate::support::redis_server::RedisServer;

/// What no script may take.
const TOO_LONG: Duration = Duration::from_millis(20);

/// How often a question is asked again whose scripts took too long: on a busy machine the server itself has to wait now and then.
const TRIES: usize = 20;

const MIB: usize = 1 << 20;

fn store_on(server: &RedisServer) -> RedisStore {
    RedisStore::builder(pool(server)).prefix(PREFIX).timeout(Duration::from_secs(60)).build()
}

/// How many scripts took too long since the log was emptied.
fn slow_scripts(server: &RedisServer) -> usize {
    let log = server.command(&["SLOWLOG", "GET", "1000"]);
    log.lines().filter(|line| ["EVAL", "EVALSHA"].contains(line)).count()
}

/// Asks until no script of it took too long.
async fn is_quick<T>(server: &RedisServer, what: &str, ask: impl AsyncFn() -> T) -> T {
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", &TOO_LONG.as_micros().to_string()]);
    for _ in 0..TRIES {
        server.command(&["SLOWLOG", "RESET"]);
        let answer = ask().await;
        if slow_scripts(server) == 0 {
            return answer;
        }
    }
    panic!("{what}: a script took more than {TOO_LONG:?} in each of {TRIES} tries");
}

/// How many commands the server has carried out, those of scripts included, and those of this question left out.
fn commands(server: &RedisServer) -> usize {
    let statistics = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| line.strip_prefix("cmdstat_")?.split(['=', ',']).nth(1)?.parse::<usize>().ok();
    let of_test =
        |line: &&str| !["info", "config", "slowlog", "client", "hello", "ping"].iter().any(|name| line.contains(name));
    statistics.lines().filter(of_test).filter_map(calls).sum()
}

/// Accepts events of these types, many at a time.
async fn accept_of_types(store: &RedisStore, types: impl Iterator<Item = String>) {
    let mut accepting = JoinSet::new();
    for (n, event_type) in types.enumerate() {
        if accepting.len() >= 256 {
            accepting.join_next().await.expect("a task").expect("no panic");
        }
        let store = store.clone();
        accepting.spawn(async move {
            let key = EventKey::new("/hooks", None, &n.to_string());
            let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(Some(&event_type));
            let claim = store.accept(&claim, &parcel("x")).await;
            assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
        });
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

/// Events of the size that the largest sender sends.
#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_pass_through_no_script() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let body = vec![b'x'; 25 * MIB];
    let accept = async |id: &str, body: &[u8]| {
        let key = EventKey::new("/hooks", None, id);
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        store.accept(&claim, &Parcel::new("a head", body.to_vec(), now())).await.expect("an answer")
    };
    accept("small", b"{}").await;
    for n in 0..3 {
        is_quick(&server, "accepting", async || accept(&n.to_string(), &body).await).await;
    }
    for n in 3..20 {
        accept(&n.to_string(), &body[..MIB]).await;
    }
    let listed = is_quick(&server, "listing", async || store.list(&Filter::all(), &Page::first(100)).await).await;
    assert_eq!(listed.expect("an answer").len(), 21);
    let counts = is_quick(&server, "counting", async || store.counts().await).await;
    assert_eq!(counts.expect("an answer").waiting, 21);
    let mut all = 0;
    while all < 21 {
        let leased = is_quick(&server, "leasing", async || {
            let leased = lease(&store, 64).await;
            if slow_scripts(&server) > 0 {
                put_back(&store, &leased).await;
            }
            leased
        })
        .await;
        let bytes: usize = leased.iter().map(|leased| leased.parcel.body.len()).sum();
        assert!(bytes < 30 * MIB, "{bytes} bytes at a time");
        for leased in &leased {
            let length = match leased.key.id() {
                "small" => 2,
                "0" | "1" | "2" => 25 * MIB,
                _ => MIB,
            };
            assert_eq!(leased.parcel.body.len(), length, "{}", leased.key);
            let completion = Completion::succeeded("OK", RETENTION);
            let hold = store.complete(&leased.claim(LEASE), &completion).await;
            assert_eq!(hold.expect("an answer"), Hold::Held);
        }
        all += leased.len();
    }
    let requeued = is_quick(&server, "requeuing", async || store.requeue(&Filter::all(), true).await).await;
    requeued.map(drop).expect("an answer");
    is_quick(&server, "discarding", async || store.discard(&Filter::all(), RETENTION).await).await.expect("an answer");
    is_quick(&server, "forgetting", async || store.forget(&Filter::all()).await).await.expect("an answer");
    eventually("nothing is left", async || server.keys().is_empty()).await;
}

/// A duplicate of a large event is known by its record: its body is not written for that.
#[tokio::test(flavor = "multi_thread")]
async fn large_duplicate_is_not_written() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let key = EventKey::new("/hooks", None, "evt_1");
    let large = Parcel::new("a head", vec![b'x'; MIB], now());
    for n in 0..3 {
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        let claim = store.accept(&claim, &large).await.expect("an answer");
        assert_eq!(matches!(claim, Claim::Fresh { .. }), n == 0, "{claim:?}");
        assert_eq!(server.keys().iter().filter(|key| key.contains("parcel")).count(), 1);
    }
    let parcels = server.command(&["KEYS", "*parcel*"]);
    assert_eq!(server.command(&["PTTL", parcels.trim()]), "-1\n", "it is kept until the event has been run");
}

/// How many commands a lease of 64 costs, and how many one that finds nothing does.
async fn costs(server: &RedisServer, store: &RedisStore) -> usize {
    let before = commands(server);
    let leased = lease(store, 64).await;
    let cost = commands(server) - before;
    put_back(store, &leased).await;
    cost
}

/// Also where most of them have no room.
#[tokio::test(flavor = "multi_thread")]
async fn lease_costs_the_same_with_any_number_of_kinds() {
    let mut all_costs = Vec::new();
    for kinds in [100, 1000] {
        let server = RedisServer::start();
        let store = store_on(&server);
        accept_of_types(&store, (0..3 * kinds).map(|n| format!("type {}", n % kinds))).await;
        let leased = is_quick(&server, "leasing", async || {
            let leased = lease(&store, 64).await;
            put_back(&store, &leased).await;
            leased
        })
        .await;
        assert_eq!(leased.len(), 64);
        let mut full = KindLimits::new(1);
        for n in 0..kinds - 10 {
            full = full.with(format!("type {n}"), 0);
        }
        let mut request = LeaseRequest::new(64, LEASE);
        request.per_type = Some(&full);
        let leased = is_quick(&server, "leasing with bulkheads", async || {
            let leased = store.lease(&request).await.expect("an answer");
            put_back(&store, &leased).await;
            leased
        })
        .await;
        assert_eq!(leased.len(), 10, "one of each that has room");
        is_quick(&server, "counting", async || store.counts().await).await.map(drop).expect("an answer");
        all_costs.push(costs(&server, &store).await);
    }
    let [few, many] = all_costs[..] else { unreachable!("two servers") };
    assert!(many <= few + few / 4, "{few} commands with 100 kinds, and {many} with 1,000");
}

/// A worker that has nothing to do asks every second.
#[tokio::test(flavor = "multi_thread")]
async fn idle_lease_costs_the_same_with_any_number_of_future_retries() {
    let server = RedisServer::start();
    let store = store_on(&server);
    const TYPES: usize = 3000;
    let idle = async || {
        let before = commands(&server);
        assert!(lease(&store, 64).await.is_empty());
        commands(&server) - before
    };
    let mut empty = idle().await;
    empty = empty.min(idle().await);
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
    is_quick(&server, "an idle lease", async || assert!(lease(&store, 64).await.is_empty())).await;
    is_quick(&server, "counting", async || store.counts().await).await.map(drop).expect("an answer");
    let mut cost = idle().await;
    for _ in 0..5 {
        cost = cost.min(idle().await);
    }
    assert!(cost <= empty + 10, "{cost} commands with {TYPES} future retries, and {empty} without any");
}

/// What an operator does to many events is done to some at a time.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_on_many_events_are_many_short_scripts() {
    let server = RedisServer::start();
    let store = store_on(&server);
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
    let all = Filter::all().state(EventState::Dead);
    let page = Page::first(EVENTS);
    let listed = is_quick(&server, "listing", async || store.list(&all, &page).await).await;
    assert_eq!(listed.expect("an answer").len(), EVENTS);
    // Asked again where the machine was busy, the verbs find nothing.
    is_quick(&server, "requeuing", async || store.requeue(&all, false).await).await.map(drop).expect("an answer");
    is_quick(&server, "discarding", async || store.discard(&Filter::all(), RETENTION).await).await.expect("an answer");
    let counts = is_quick(&server, "counting", async || store.counts().await).await.expect("an answer");
    assert_eq!((counts.completed, counts.waiting, counts.dead), (EVENTS as u64, 0, 0));
    is_quick(&server, "forgetting", async || store.forget(&Filter::all()).await).await.expect("an answer");
    assert_eq!(server.keys().len(), 0);
}
