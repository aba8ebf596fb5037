//! A script that fails is not rolled back, and others have access to the server: no accepted event is lost for that.

use std::time::Duration;

use tower_webhook::queue::{Filter, LeaseRequest, Queue, QueueCounts, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store};
use tower_webhook::testing::conformance::Harness;

use super::fixture::{
    LEASE, PREFIX, RETENTION, accept_all, accept_ordered, ids, lease, listed, now, run_all, store_on,
};
use crate::redis::fixture::{Fixture, pool, pool_of};
use crate::redis::receiver::{eventually, key};
use crate::support::servers::redis::RedisServer;

fn record(id: &str) -> String {
    format!("{PREFIX}{}", key(id))
}

/// Whichever command it is that the server refuses in the middle of a script.
#[tokio::test(flavor = "multi_thread")]
async fn failed_lease_loses_nothing() {
    for forbidden in ["zadd", "set", "zrem", "hget", "hset", "zrangebyscore", "xrange", "xrevrange", "get", "sadd"] {
        let server = RedisServer::start();
        server.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"]);
        let url = format!("redis://weak:pw@{}/", server.address());
        let weak = RedisStore::builder(pool_of(&url)).prefix(PREFIX).build();
        let strong = store_on(&server);
        // One that was put back, and one whose lease lapses.
        accept_all(&strong, ["back".to_owned(), "lapsed".to_owned()]).await;
        let first = lease(&strong, 2).await;
        assert_eq!(strong.release(&first[0].key, first[0].token).await.expect("an answer"), Hold::Held);
        let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
        clock.pass(LEASE * 2).await;
        accept_all(&strong, ["1".to_owned()]).await;
        for id in ["a", "b", "c"] {
            accept_ordered(&strong, id).await;
        }
        accept_all(&strong, ["2".to_owned()]).await;
        server.command(&["ACL", "SETUSER", "weak", &format!("-{forbidden}")]);
        for attempt in 0..3 {
            let failed = weak.lease(&LeaseRequest::new(10, LEASE)).await;
            assert!(failed.is_err() || attempt > 0 || forbidden == "sadd", "{forbidden}: {failed:?}");
        }
        // What was leased, and not told to anybody, lapses.
        let mut all = run_all(&strong).await;
        clock.pass(LEASE * 2).await;
        all.extend(run_all(&strong).await);
        let ordered: Vec<_> = all.iter().filter(|id| ["a", "b", "c"].contains(&id.as_str())).collect();
        assert_eq!(ordered, ["a", "b", "c"], "{forbidden}");
        all.sort_unstable();
        assert_eq!(all, ["1", "2", "a", "b", "back", "c", "lapsed"], "{forbidden}");
        let counts = strong.counts().await.expect("an answer");
        assert_eq!((counts.waiting, counts.running, counts.completed), (0, 0, 7), "{forbidden}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_entries_and_values_hold_up_nobody() {
    let server = RedisServer::start();
    let (store, events) = (store_on(&server), format!("{PREFIX}inbox:events"));
    accept_all(&store, ["1".to_owned()]).await;
    server.command(&["XADD", &events, "*", "k", "v"]);
    server.command(&["XADD", &events, "*", "somebody", "else's", "a", "b", "c", "d", "e", "f"]);
    for odd in ["", "odd", "\0\0\0\x09too short", "\x7f\x7f\x7f\x7flong"] {
        server.command(&["XADD", &events, "*", "e", odd, "b", "a body"]);
    }
    accept_all(&store, ["2".to_owned(), "3".to_owned()]).await;
    server.command(&["DEL", &record("2")]);
    server.command(&["HSET", &record("2"), "no", "record"]);
    assert_eq!(listed(&store, &Filter::all()).await, ["1", "3"]);
    store.counts().await.map(drop).expect("an answer");
    assert_eq!(run_all(&store).await, ["1", "2", "3"]);
    assert_eq!(store.counts().await.expect("an answer").running, 0);
}

/// Wherever the event is when its record is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn event_without_its_record_is_run_wherever_it_is() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["back".to_owned(), "lapsed".to_owned()]).await;
    for id in ["a", "b"] {
        accept_ordered(&store, id).await;
    }
    accept_all(&store, ["swept".to_owned()]).await;
    let leased = lease(&store, 10).await;
    assert_eq!(ids(&leased), ["back", "lapsed", "a", "swept"]);
    assert_eq!(store.release(&leased[0].key, leased[0].token).await.expect("an answer"), Hold::Held);
    for id in ["back", "lapsed", "b"] {
        assert_eq!(server.command(&["DEL", &record(id)]), "1\n");
    }
    let hold = store.complete(&leased[2].claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    let mut all = run_all(&store).await;
    assert_eq!(all, ["back", "b"], "by their arrival");
    // A sweep, which a new store begins with, lists the last one again, and lets be what a worker still has.
    let running = format!("{PREFIX}inbox:running");
    let last = server.command(&["ZREVRANGE", &running, "0", "0"]);
    assert_eq!(server.command(&["ZREM", &running, last.trim()]), "1\n");
    let other = store_on(&server);
    eventually("the sweep is over", async || {
        assert!(lease(&other, 10).await.is_empty());
        store.counts().await.expect("an answer").running == 2
    })
    .await;
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    clock.pass(LEASE * 2).await;
    all = run_all(&store).await;
    all.sort_unstable();
    assert_eq!(all, ["lapsed", "swept"]);
}

/// Its record is deleted while a worker has the event. Whatever the worker does next, it has lost the event, which runs again when the
/// lease has ended.
#[tokio::test(flavor = "multi_thread")]
async fn event_whose_record_is_deleted_while_it_runs_is_run_again_whatever_its_worker_does() {
    const VERBS: [&str; 8] = ["bury", "complete", "fail", "release", "renew", "renew and retry", "retry", "start"];
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, VERBS.map(str::to_owned)).await;
    let leased = lease(&store, VERBS.len()).await;
    assert_eq!(ids(&leased), VERBS);
    for id in VERBS {
        assert_eq!(server.command(&["DEL", &record(id)]), "1\n");
    }
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    clock.pass(LEASE / 3).await;
    let mut holds = Vec::new();
    for leased in &leased {
        let claim = leased.claim(LEASE);
        let hold = match leased.key.id() {
            "bury" => store.bury(&claim, "hopeless").await,
            "complete" => store.complete(&claim, &Completion::succeeded("OK", RETENTION)).await,
            "fail" => store.complete(&claim, &Completion::failed("hopeless", RETENTION)).await,
            "release" => store.release(&leased.key, leased.token).await,
            "renew" => store.renew(&claim).await,
            "renew and retry" => {
                holds.push(store.renew(&claim).await.expect("an answer"));
                store.retry(&claim, Duration::ZERO, "flaky").await
            }
            "retry" => store.retry(&claim, Duration::ZERO, "flaky").await,
            _ => store.start(&claim).await,
        };
        holds.push(hold.expect("an answer"));
    }
    // The leases have ended. A lease that had been renewed would not have.
    clock.pass(LEASE * 3 / 4).await;
    let mut all = run_all(&store).await;
    all.sort_unstable();
    assert_eq!(all, VERBS);
    assert_eq!(holds, [Hold::Lost; VERBS.len() + 1]);
    let counts = store.counts().await.expect("an answer");
    assert_eq!((counts.waiting, counts.running, counts.completed), (0, 0, VERBS.len() as u64));
}

/// Nobody can tell who holds an event without its record: a worker whose lease lapsed does not settle what another one runs by now.
#[tokio::test(flavor = "multi_thread")]
async fn event_without_its_record_is_not_settled_by_an_earlier_token() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let earlier = lease(&store, 1).await.remove(0);
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    clock.pass(LEASE * 2).await;
    let later = lease(&store, 1).await.remove(0);
    assert_eq!(later.attempt, 2);
    server.command(&["DEL", &record("1")]);
    let done = Completion::succeeded("OK", RETENTION);
    assert_eq!(store.renew(&earlier.claim(LEASE)).await.expect("an answer"), Hold::Lost);
    assert_eq!(store.complete(&earlier.claim(LEASE), &done).await.expect("an answer"), Hold::Lost);
    assert!(lease(&store, 1).await.is_empty(), "the later worker's lease has not ended");
    clock.pass(LEASE * 2).await;
    assert_eq!(run_all(&store).await, ["1"]);
}

/// Its lease has ended, it waits again without a record, and then its worker is heard of once more. That worker's claim ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn event_without_its_record_that_waits_again_is_kept_while_its_worker_claims_it() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let leased = lease(&store, 1).await.remove(0);
    server.command(&["DEL", &record("1")]);
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    clock.pass(LEASE * 2).await;
    let others = ["others".into()];
    let mut request = LeaseRequest::new(9, LEASE);
    request.endpoints = &others;
    assert!(store.lease(&request).await.expect("an answer").is_empty());
    assert_eq!(store.counts().await.expect("an answer").waiting, 1);
    assert_eq!(store.renew(&leased.claim(LEASE)).await.expect("an answer"), Hold::Held);
    assert_eq!(store.retry(&leased.claim(LEASE), Duration::ZERO, "flaky").await.expect("an answer"), Hold::Lost);
    for _ in 0..2 {
        assert!(lease(&store, 1).await.is_empty());
    }
    clock.pass(LEASE * 2).await;
    assert_eq!(run_all(&store).await, ["1"]);
}

/// Somebody deleted the record of an accepted event, and a receiver without an inbox claims the event: it may run it, or give up.
#[tokio::test(flavor = "multi_thread")]
async fn event_is_kept_while_a_receiver_claims_it_and_run_unless_that_completes_it() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    for (completes, expected) in [(false, &["1", "2"][..]), (true, &["2"])] {
        accept_all(&store, ["1".to_owned()]).await;
        server.command(&["DEL", &record("1")]);
        let event = key("1");
        let inline = ClaimRequest::new(&event, ClaimToken::random(), LEASE);
        assert!(matches!(store.claim(&inline).await, Ok(Claim::Fresh { .. })));
        // The first lease finds the event where it does not belong, and the next one has it wait for the claim's end.
        for _ in 0..2 {
            assert!(lease(&store, 10).await.is_empty());
        }
        let counts = store.counts().await.expect("an answer");
        assert_eq!((counts.waiting, counts.running), (0, 1));
        if completes {
            let hold = store.complete(&inline, &Completion::succeeded("OK", RETENTION)).await;
            assert_eq!(hold.expect("an answer"), Hold::Held);
        }
        clock.pass(LEASE * 2).await;
        accept_all(&store, ["2".to_owned()]).await;
        let mut all = run_all(&store).await;
        all.sort_unstable();
        assert_eq!(all, expected);
        clock.pass(RETENTION * 2).await;
        assert_eq!(store.counts().await.expect("an answer"), QueueCounts::default());
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

/// Somebody deleted the key that says what runs: nothing is handed out again before a lease would end, and then it is.
#[tokio::test(flavor = "multi_thread")]
async fn running_events_that_are_listed_nowhere_run_again_after_a_while() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, (1..=3).map(|n| n.to_string())).await;
    for id in ["a", "b"] {
        accept_ordered(&store, id).await;
    }
    let leased = lease(&store, 10).await;
    assert_eq!(ids(&leased), ["1", "2", "3", "a"]);
    server.command(&["DEL", &format!("{PREFIX}inbox:running")]);
    assert!(lease(&store, 10).await.is_empty());
    for leased in [&leased[0], &leased[3]] {
        let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
    assert_eq!(run_all(&store).await, ["b"]);
    // A store that has only just begun looks at all of them first.
    let other = store_on(&server);
    eventually("they are listed again", async || {
        assert!(lease(&other, 10).await.is_empty());
        store.counts().await.expect("an answer").running == 2
    })
    .await;
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    clock.pass(LEASE + Duration::from_secs(1)).await;
    let mut rest = run_all(&store).await;
    rest.sort_unstable();
    assert_eq!(rest, ["2", "3"]);
}

/// An operator took it out: whoever had it has not completed it.
#[tokio::test(flavor = "multi_thread")]
async fn discarded_event_is_lost_to_its_worker() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let leased = lease(&store, 1).await.remove(0);
    assert_eq!(store.retry(&leased.claim(LEASE), LEASE, "flaky").await.expect("an answer"), Hold::Held);
    assert_eq!(store.discard(&Filter::all(), RETENTION).await.expect("an answer"), 1);
    let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Lost);
}

/// Ids of the stream go on from the last one, and so are in the future for as long as the clock was set back.
#[tokio::test(flavor = "multi_thread")]
async fn events_are_due_at_once_after_the_clock_was_set_back() {
    let server = RedisServer::start();
    let (store, events) = (store_on(&server), format!("{PREFIX}inbox:events"));
    server.command(&["XADD", &events, "5000000000000-0", "k", "v"]);
    server.command(&["XDEL", &events, "5000000000000-0"]);
    for id in ["a", "b", "c"] {
        accept_ordered(&store, id).await;
    }
    accept_all(&store, ["1".to_owned(), "2".to_owned()]).await;
    // As it was accepted before, and without a record.
    let value = server.command(&["GET", &record("1")]);
    let (head, _) = value.split_once(" 0 ").expect("a time");
    server.command(&["SET", &record("1"), &format!("{head} 0 5000000000000 w")]);
    server.command(&["DEL", &record("c")]);
    let others = ["others".into()];
    let mut request = LeaseRequest::new(9, LEASE);
    request.endpoints = &others;
    assert!(store.lease(&request).await.expect("an answer").is_empty(), "all are set aside");
    let mut all = run_all(&store).await;
    all.sort_unstable();
    assert_eq!(all, ["1", "2", "a", "b", "c"]);
    accept_all(&store, ["3".to_owned()]).await;
    assert_eq!(store.discard(&Filter::all(), RETENTION).await.expect("an answer"), 1);
}

/// The server does nothing else while it reads them.
#[tokio::test(flavor = "multi_thread")]
async fn large_events_come_a_few_at_a_time_and_all_of_them() {
    let server = RedisServer::start();
    let store = store_on(&server);
    for n in 0..20 {
        let key = key(&n.to_string());
        let large = StoredRequest::new("a head", vec![b'x'; 1 << 20], now());
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        store.enqueue(&claim, &large).await.map(drop).expect("an answer");
    }
    let mut counts = Vec::new();
    while counts.iter().sum::<usize>() < 20 {
        counts.push(lease(&store, 100).await.len());
    }
    assert_eq!(counts, [4; 5]);
    assert!(lease(&store, 1).await.is_empty());
}

/// It has lapsed and is renewed, put back or requeued by a user who may not do all of it.
#[tokio::test(flavor = "multi_thread")]
async fn failed_verb_on_an_event_loses_nothing() {
    for forbidden in ["set", "zrem", "zadd", "xdel", "xadd", "hset", "persist", "zrange"] {
        let server = RedisServer::start();
        server.command(&["ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", &format!("-{forbidden}")]);
        let url = format!("redis://weak:pw@{}/", server.address());
        let weak = RedisStore::builder(pool_of(&url)).prefix(PREFIX).build();
        let (strong, clock) =
            (store_on(&server), Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await);
        accept_all(&strong, ["back".to_owned(), "dead".to_owned(), "lapsed".to_owned()]).await;
        let leased = lease(&strong, 3).await;
        assert_eq!(strong.bury(&leased[1].claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
        let _ = weak.requeue(&Filter::all(), false).await;
        let _ = weak.retry(&leased[0].claim(LEASE), Duration::ZERO, "flaky").await;
        clock.pass(LEASE * 2).await;
        let others = ["others".into()];
        let mut request = LeaseRequest::new(9, LEASE);
        request.endpoints = &others;
        assert!(strong.lease(&request).await.expect("an answer").is_empty());
        let _ = weak.renew(&leased[2].claim(LEASE)).await;
        let mut all = run_all(&strong).await;
        strong.requeue(&Filter::all(), false).await.map(drop).expect("an answer");
        clock.pass(LEASE * 2).await;
        all.extend(run_all(&strong).await);
        all.sort_unstable();
        assert_eq!(all, ["back", "dead", "lapsed"], "{forbidden}");
    }
}
