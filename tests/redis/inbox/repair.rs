//! What failed scripts and other hands leave behind is put right by the next lease, or by a sweep.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_webhook::queue::{EventState, Filter, LeaseRequest, Queue};
use tower_webhook::store::{Completion, Hold, RedisStore, Store};
use tower_webhook::testing::conformance::Harness;

use super::fixture::{
    LEASE, PREFIX, RETENTION, accept, accept_all, accept_ordered, ids, lease, listed, run_all, store_on,
};
use crate::redis::fixture::{Fixture, pool, pool_of};
use crate::redis::receiver::{eventually, key};
use crate::support::logs::Logs;
use crate::support::servers::redis::RedisServer;

async fn clock_of(server: &RedisServer) -> Fixture {
    Fixture::new(pool(server), std::slice::from_ref(server), "inbox").await
}

fn members(server: &RedisServer, set: &str) -> Vec<String> {
    let members = server.command(&["ZRANGE", &format!("{PREFIX}inbox:{set}"), "0", "-1"]);
    members.lines().map(str::to_owned).collect()
}

/// What is counted is what is listed, in every state.
async fn assert_consistent(store: &RedisStore, when: &str) {
    let counts = store.counts().await.expect("an answer");
    for (state, count) in [
        (EventState::Waiting, counts.waiting),
        (EventState::Running, counts.running),
        (EventState::Completed, counts.completed),
        (EventState::Dead, counts.dead),
    ] {
        let listed = listed(store, &Filter::all().state(state)).await;
        assert_eq!(listed.len() as u64, count, "{when}: {state:?} events are {listed:?}");
    }
}

/// Every verb, by a user whom the server refuses one command in the middle of it.
#[tokio::test(flavor = "multi_thread")]
async fn verbs_that_fail_half_way_leave_nothing_behind() {
    for forbidden in
        ["set", "zadd", "zrem", "xdel", "xadd", "hset", "hdel", "del", "pexpire", "persist", "zrange", "hget"]
    {
        let server = RedisServer::start();
        server.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", &format!("-{forbidden}")]);
        let url = format!("redis://weak:pw@{}/", server.address());
        let weak = RedisStore::builder(pool_of(&url)).prefix(PREFIX).timeout(Duration::from_secs(10)).build();
        let (strong, clock) = (store_on(&server), clock_of(&server).await);
        accept_all(&strong, (1..=7).map(|n| n.to_string())).await;
        for id in ["a", "b", "c"] {
            accept_ordered(&strong, id).await;
        }
        let leased = lease(&strong, 10).await;
        assert_eq!(ids(&leased), ["1", "2", "3", "4", "5", "6", "7", "a"]);
        for n in [5, 6] {
            assert_eq!(strong.bury(&leased[n].claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
        }
        let one = |id: &str| Filter::one(key(id));
        let done = Completion::succeeded("OK", RETENTION);
        let failed = [
            weak.complete(&leased[0].claim(LEASE), &done).await.is_err(),
            weak.bury(&leased[1].claim(LEASE), "hopeless").await.is_err(),
            weak.retry(&leased[2].claim(LEASE), Duration::ZERO, "flaky").await.is_err(),
            weak.release(&leased[3].key, leased[3].token).await.is_err(),
            weak.complete(&leased[7].claim(LEASE), &done).await.is_err(),
            weak.discard(&one("b"), RETENTION).await.is_err(),
            weak.requeue(&one("6"), false).await.is_err(),
            weak.forget(&one("7")).await.is_err(),
            accept(&weak, &key("new"), "test.event").await.is_err(),
        ];
        assert!(failed.contains(&true), "{forbidden} is needed by none of them");
        // Those that failed are repeated, as a worker and an operator would.
        run_all(&strong).await;
        assert_consistent(&strong, forbidden).await;
        clock.pass(LEASE * 2).await;
        run_all(&strong).await;
        strong.requeue(&Filter::all(), false).await.map(drop).expect("an answer");
        run_all(&strong).await;
        assert_consistent(&strong, forbidden).await;
        let counts = strong.counts().await.expect("an answer");
        assert_eq!((counts.waiting, counts.running, counts.dead), (0, 0, 0), "{forbidden}");
        let kept = listed(&strong, &Filter::all()).await;
        for id in ["1", "2", "3", "4", "5", "6", "a", "b", "c"] {
            assert_eq!(kept.iter().filter(|kept| *kept == id).count(), 1, "{forbidden}: {id} of {kept:?}");
        }
        strong.forget(&Filter::all()).await.expect("an answer");
        assert_eq!(server.keys(), Vec::<String>::new(), "{forbidden}");
    }
}

/// An operator's command went wrong: the indexes are gone, and the events are not.
#[tokio::test(flavor = "multi_thread")]
async fn lost_indexes_are_made_anew() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, (1..=300).map(|n| n.to_string())).await;
    for id in ["a", "b", "c"] {
        accept_ordered(&store, id).await;
    }
    for key in server.keys() {
        if ["due:", "types:", "endpoints:", "order:"].iter().any(|name| key.contains(&format!("inbox:{name}"))) {
            server.command(&["DEL", &key]);
        }
    }
    let mut all = Vec::new();
    // Each store that has only just begun looks at 200 events at once; later ones at so many every now and then.
    for _ in 0..2 {
        all.extend(run_all(&store_on(&server)).await);
    }
    let sweeper = store_on(&server);
    let expected = 303;
    let found = std::sync::Mutex::new(all);
    eventually("all of them have run", async || {
        let more = run_all(&sweeper).await;
        let mut found = found.lock().expect("no panic");
        found.extend(more);
        found.len() == expected
    })
    .await;
    let found = found.into_inner().expect("no panic");
    let ordered: Vec<_> = found.iter().filter(|id| ["a", "b", "c"].contains(&id.as_str())).collect();
    assert_eq!(ordered, ["a", "b", "c"]);
}

/// Members of sets that no event belongs to, and events that are in the wrong one.
#[tokio::test(flavor = "multi_thread")]
async fn stale_members_are_removed() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["done".to_owned(), "dead".to_owned(), "waiting".to_owned()]).await;
    let leased = lease(&store, 2).await;
    let hold = store.complete(&leased[0].claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    assert_eq!(store.bury(&leased[1].claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
    let (done, dead) = (members(&server, "completed").remove(0), members(&server, "dead").remove(0));
    let set = |name: &str, score: &str, member: &str| {
        server.command(&["ZADD", &format!("{PREFIX}inbox:{name}"), score, member]);
    };
    set("dead", "0", "1700000000000000001");
    set("dead", "0", &done);
    set("completed", "9000000000000", &dead);
    set("running", "1", "1700000000000000002");
    let other = store_on(&server);
    eventually("everything is where it belongs", async || {
        // The event that waits is leased for a moment.
        for leased in lease(&other, 1).await {
            let _ = other.release(&leased.key, leased.token).await;
        }
        members(&server, "running").is_empty() && members(&server, "completed") == [done.clone()]
    })
    .await;
    assert_eq!(listed(&other, &Filter::all().state(EventState::Dead)).await, ["dead"]);
    assert_eq!(members(&server, "dead"), [dead]);
    assert_consistent(&other, "afterwards").await;
}

/// The fields of an entry, each behind its length.
fn facts(texts: &[&str]) -> String {
    texts
        .iter()
        .map(|text| format!("\0\0\0{}{text}", char::from(u8::try_from(text.len()).expect("a short text"))))
        .collect()
}

/// An entry that a later version wrote, one that is not quite right, and a record of a later version: each is given up, told of, and kept.
#[tokio::test]
async fn event_of_another_version_is_a_dead_letter_and_told_of() {
    let server = RedisServer::start();
    let (logs, _listening) = Logs::capture();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let print = "AAAAAAAAAAA";
    for (id, event) in [
        ("later", ["2", &*key("later").to_string(), "", "request-1", "what", "comes", "in", "version", "2"]),
        ("odd", ["1", &*key("odd").to_string(), "", "request-2", "", print, "noon", "", "9"]),
    ] {
        let entry = server.command(&["XADD", &format!("{PREFIX}inbox:events"), "*", "e", &facts(&event)]);
        let (ms, number) = entry.trim().split_once('-').expect("an id");
        let number = format!("{ms}{number:0>6}");
        let record = format!("a:AAAAAAAAAAAAAAAAAAAAAA:{print}:@{number} 0 {ms} w");
        server.command(&["SET", &format!("{PREFIX}{}", key(id)), &record]);
        let endpoint = key(id).endpoint().to_owned();
        server.command(&["ZADD", &format!("{PREFIX}inbox:due:u{}:{endpoint}", endpoint.len()), ms, &number]);
        server.command(&["ZADD", &format!("{PREFIX}inbox:types:u{endpoint}"), "0", ""]);
        server.command(&["ZADD", &format!("{PREFIX}inbox:endpoints:u"), "0", &endpoint]);
    }
    accept_all(&store, ["record".to_owned(), "2".to_owned()]).await;
    let record = format!("{PREFIX}{}", key("record"));
    server.command(&["SET", &record, &format!("a:AAAAAAAAAAAAAAAAAAAAAA:{print}:#2 is written otherwise")]);
    assert_eq!(run_all(&store).await, ["1", "2"]);
    let dead = Filter::all().state(EventState::Dead);
    assert_eq!(listed(&store, &dead).await, ["later", "odd", "record"]);
    let kept = store.get(&key("later")).await.expect("an answer").expect("an event");
    assert!(kept.summary.is_some_and(|summary| summary.contains("this version")));
    assert_eq!(logs.count("cannot be run, and is a dead letter now"), 3, "{:?}", logs.lines());
    // A version that can read it may run it: it waits again, and this one gives it up once more.
    assert_eq!(store.requeue(&Filter::one(key("record")), false).await.expect("an answer").events, 1);
    assert_eq!(run_all(&store).await, ["record"]);
    assert_eq!(store.counts().await.expect("an answer").running, 0);
}

/// A key was deleted by hand.
#[tokio::test]
async fn event_whose_stored_request_is_gone_is_a_dead_letter_and_told_of() {
    let server = RedisServer::start();
    let (logs, _listening) = Logs::capture();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let stored_request = server.keys().into_iter().find(|key| key.contains("inbox:request:")).expect("a request");
    accept_all(&store, ["2".to_owned()]).await;
    server.command(&["DEL", &stored_request]);
    assert_eq!(run_all(&store).await, ["2"]);
    assert_eq!(listed(&store, &Filter::all().state(EventState::Dead)).await, ["1"]);
    assert_eq!(logs.count("cannot be run, and is a dead letter now"), 1, "{:?}", logs.lines());
    let requeued = store.requeue(&Filter::all(), false).await.expect("an answer");
    assert_eq!((requeued.events, requeued.without_body), (0, 1));
}

/// A worker that has nothing to do leases rarely: one lease begins to delete all that is over.
#[tokio::test(flavor = "multi_thread")]
async fn burst_is_purged_after_one_lease() {
    let server = RedisServer::start();
    let (store, clock) = (store_on(&server), clock_of(&server).await);
    const EVENTS: usize = 3000;
    let mut accepting = JoinSet::new();
    for n in 0..EVENTS {
        let store = store.clone();
        accepting.spawn(async move { accept(&store, &key(&n.to_string()), "test.event").await });
    }
    accepting.join_all().await.into_iter().for_each(|claim| assert!(claim.is_ok(), "{claim:?}"));
    let mut completed = 0;
    while completed < EVENTS {
        let leased = lease(&store, 256).await;
        completed += leased.len();
        let mut completing = JoinSet::new();
        for leased in leased {
            let store = store.clone();
            completing.spawn(async move {
                store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await
            });
        }
        completing.join_all().await.into_iter().for_each(|hold| assert_eq!(hold.expect("an answer"), Hold::Held));
    }
    clock.pass(RETENTION * 2).await;
    assert!(store.lease(&LeaseRequest::new(1, LEASE)).await.expect("an answer").is_empty());
    eventually("everything is gone", async || server.keys().is_empty()).await;
}
