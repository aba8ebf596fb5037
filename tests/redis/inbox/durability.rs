//! What was answered is there: after a crash of the server, and after it has forgotten its scripts.

use std::collections::BTreeSet;
use std::time::Duration;

use tower_webhook::queue::{Filter, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store, StoreErrorKind};

use super::fixture::{LEASE, PREFIX, RETENTION, accept, accept_all, ids, lease, listed, now, store_on};
use crate::redis::fixture::pool;
use crate::redis::receiver::{eventually, key};
use crate::support::servers::redis::RedisServer;

const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

#[tokio::test(flavor = "multi_thread")]
async fn accepted_events_survive_a_crash_in_their_order() {
    let mut server = RedisServer::with(&DURABLE);
    let store = store_on(&server);
    accept_all(&store, (0..50).map(|n| n.to_string())).await;
    let leased = lease(&store, 10).await;
    for leased in &leased[..5] {
        let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
    server.kill();
    server.restart();
    let after = store_on(&server);
    let counts = after.counts().await.expect("an answer");
    assert_eq!((counts.waiting, counts.running, counts.completed), (40, 5, 5));
    let rest: Vec<_> = (10..50).map(|n| n.to_string()).collect();
    assert_eq!(ids(&lease(&after, 100).await), rest);
    let hold = after.complete(&leased[5].claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Held, "the lease has outlived the server, too");
}

/// No 200 without the event in the stream.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_killed_during_accepts_keeps_what_it_has_answered() {
    let mut server = RedisServer::with(&DURABLE);
    for round in 0..3 {
        let store = store_on(&server);
        let accepted = std::sync::Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let senders: Vec<_> = (0..16)
            .map(|sender| {
                let (store, accepted) = (store.clone(), accepted.clone());
                tokio::spawn(async move {
                    for n in 0.. {
                        let id = format!("{round}-{sender}-{n}");
                        match accept(&store, &key(&id), "test.event").await {
                            Ok(Claim::Fresh { .. }) => accepted.lock().expect("no panic").insert(id),
                            Ok(other) => panic!("{id}: {other:?}"),
                            Err(_) => return,
                        };
                    }
                })
            })
            .collect();
        eventually("some are accepted", async || accepted.lock().expect("no panic").len() > 200).await;
        server.kill();
        for sender in senders {
            sender.await.expect("no panic");
        }
        server.restart();
        let kept: BTreeSet<_> = listed(&store_on(&server), &Filter::all()).await.into_iter().collect();
        let accepted = accepted.lock().expect("no panic");
        let lost: Vec<_> = accepted.difference(&kept).collect();
        assert!(lost.is_empty(), "{} accepted, and lost: {lost:?}", accepted.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_scripts_are_sent_again() {
    let server = RedisServer::start();
    let store = store_on(&server);
    for n in 0..5 {
        accept_all(&store, [n.to_string()]).await;
        server.command(&["SCRIPT", "FLUSH"]);
        let leased = lease(&store, 1).await.remove(0);
        server.command(&["SCRIPT", "FLUSH"]);
        assert_eq!(store.renew(&leased.claim(LEASE)).await.expect("an answer"), Hold::Held);
        server.command(&["SCRIPT", "FLUSH"]);
        let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
        assert_eq!(hold.expect("an answer"), Hold::Held);
    }
    assert_eq!(store.counts().await.expect("an answer").completed, 5);
}

/// As after a failover to a replica that had nothing. What a worker has done is remembered nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn server_that_has_forgotten_everything_is_an_empty_inbox() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned(), "2".to_owned()]).await;
    let leased = lease(&store, 2).await;
    server.command(&["FLUSHALL"]);
    assert!(lease(&store, 1).await.is_empty());
    assert_eq!(store.renew(&leased[0].claim(LEASE)).await.expect("an answer"), Hold::Held);
    let inline = accept(&store, &leased[0].key, "test.event").await.expect("an answer");
    assert_eq!(inline, Claim::InFlight { same_body: true }, "it is still run, whoever has forgotten it");
    let hold = store.complete(&leased[0].claim(LEASE), &Completion::succeeded("OK", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    assert!(matches!(accept(&store, &leased[0].key, "test.event").await, Ok(Claim::Completed { .. })));
    assert_eq!(store.retry(&leased[1].claim(LEASE), LEASE, "flaky").await.expect("an answer"), Hold::Lost);
    accept_all(&store, ["2".to_owned()]).await;
    assert_eq!(ids(&lease(&store, 2).await), ["2"]);
}

/// Neither the first delivery is told that it is safe, nor the sender's next one that finds it.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_event_without_enough_replicas_is_an_error_until_they_have_it() {
    let primary = RedisServer::start();
    let store = |wait| RedisStore::builder(pool(&primary)).prefix(PREFIX).replicas(1).replica_timeout(wait).build();
    let hasty = store(Duration::from_millis(50));
    for _ in 0..2 {
        let error = accept(&hasty, &key("evt_1"), "test.event").await.expect_err("no replicas");
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    }
    assert_eq!(listed(&hasty, &Filter::all()).await, ["evt_1"], "nothing is taken back");
    let _replica = RedisServer::replica_of(&primary);
    let patient = store(Duration::from_secs(30));
    assert!(matches!(accept(&patient, &key("evt_1"), "test.event").await, Ok(Claim::Accepted { .. })));
    assert_eq!(ids(&lease(&patient, 10).await), ["evt_1"]);
}

/// The event is there, and so is its body, which was written before.
#[tokio::test(flavor = "multi_thread")]
async fn large_event_that_too_few_replicas_confirm_keeps_its_body() {
    let primary = RedisServer::start();
    let wait = Duration::from_millis(50);
    let store = RedisStore::builder(pool(&primary)).prefix(PREFIX).replicas(1).replica_timeout(wait).build();
    let (key, large) = (key("evt_1"), StoredRequest::new("a head", vec![b'x'; 1 << 20], now()));
    for _ in 0..2 {
        let error = store.enqueue(&ClaimRequest::new(&key, ClaimToken::random(), LEASE), &large).await;
        assert_eq!(error.expect_err("no replicas").kind(), StoreErrorKind::Unavailable);
    }
    let leased = lease(&store_on(&primary), 10).await;
    assert_eq!(leased.iter().map(|leased| &leased.request).collect::<Vec<_>>(), [&large]);
}
