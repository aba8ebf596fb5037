//! What is in Redis, and what is left when it is over.

use std::error::Error;

use tower_webhook::EventKey;
use tower_webhook::queue::{Filter, LeaseRequest, Order, Queue, QueueCounts};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store, StoreErrorKind};
use tower_webhook::testing::conformance::Harness;

use super::fixture::{LEASE, PREFIX, RETENTION, accept, accept_all, lease, store_on, stored_request};
use crate::redis::fixture::{Fixture, cluster_pool, pool, pool_of};
use crate::redis::old_server::OldServer;
use crate::redis::receiver::key;
use crate::support::servers::redis::{RedisCluster, RedisServer};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_when_the_retention_is_over() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, (0..20).map(|n| n.to_string())).await;
    for n in 0..10 {
        let key = key(&format!("ordered {n}"));
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        store.enqueue(&claim, &stored_request("x").ordered(Order::of("resource"))).await.map(drop).expect("an answer");
    }
    let quick = ["none of these".into()];
    for attempt in 0.. {
        let leased = lease(&store, 8).await;
        if leased.is_empty() && attempt > 0 {
            break;
        }
        for (n, leased) in leased.iter().enumerate() {
            let claim = leased.claim(LEASE);
            let hold = match (n, leased.attempt) {
                (0, 1) => store.retry(&claim, std::time::Duration::ZERO, "flaky").await,
                (1, 1) => store.release(&leased.key, leased.token).await,
                _ => store.complete(&claim, &Completion::succeeded("OK", RETENTION)).await,
            };
            assert_eq!(hold.expect("an answer"), Hold::Held);
        }
        let mut others = LeaseRequest::new(1, LEASE);
        others.endpoints = &quick;
        assert!(store.lease(&others).await.expect("an answer").is_empty());
    }
    let clock = Fixture::new(pool(&server), std::slice::from_ref(&server), "inbox").await;
    assert_eq!(store.counts().await.expect("an answer").completed, 30);
    clock.pass(RETENTION * 2).await;
    assert_eq!(store.counts().await.expect("an answer"), QueueCounts::default());
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_dead_letter_leaves_nothing() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let leased = lease(&store, 1).await.remove(0);
    assert_eq!(store.bury(&leased.claim(LEASE), "hopeless").await.expect("an answer"), Hold::Held);
    assert_eq!(store.forget(&Filter::all()).await.expect("an answer"), 1);
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// For people who look.
#[tokio::test(flavor = "multi_thread")]
async fn record_says_what_became_of_the_event() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["evt_1".to_owned()]).await;
    let record = format!("{PREFIX}{}", key("evt_1"));
    let value = server.command(&["GET", &record]);
    assert!(value.starts_with("a:") && value.ends_with(" w\n"), "{value}");
    let leased = lease(&store, 1).await.remove(0);
    let value = server.command(&["GET", &record]);
    let (_, since) = value.trim().split_once(" r ").expect("since when it was due");
    assert!(value.starts_with("a:") && since.parse::<u64>().is_ok(), "{value}");
    assert_eq!(server.command(&["PTTL", &record]), "-1\n", "it is kept until it has been run");
    let hold = store.complete(&leased.claim(LEASE), &Completion::succeeded("Created", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    let value = server.command(&["GET", &record]);
    assert!(value.starts_with("c:") && value.ends_with(" Created\n"), "{value}");
    let left: u64 = server.command(&["PTTL", &record]).trim().parse().expect("a number");
    assert!((1..=3_600_000).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn inbox_on_an_old_server_is_refused_and_says_why() {
    let old = OldServer::start().await;
    let store = RedisStore::new(pool_of(&old.url()));
    let errors = [
        accept(&store, &key("evt_1"), "test.event").await.map(drop),
        store.lease(&LeaseRequest::new(1, LEASE)).await.map(drop),
    ];
    for error in errors.map(|error| error.expect_err("an old server")) {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let source = error.source().expect("a source").to_string();
        assert!(source.contains("needs Redis 7.0"), "{source}");
    }
    assert_eq!(old.server.keys(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn cluster_without_a_hash_tag_is_refused_and_says_what_to_do() {
    let cluster = RedisCluster::start();
    let untagged = RedisStore::new(cluster_pool(&cluster));
    let event = EventKey::new("/hooks/{tenant}", None, "evt_1");
    let errors = [
        accept(&untagged, &event, "test.event").await.map(drop),
        untagged.lease(&LeaseRequest::new(1, LEASE)).await.map(drop),
        untagged.counts().await.map(drop),
    ];
    for error in errors.map(|error| error.expect_err("several slots")) {
        assert_eq!(error.kind(), StoreErrorKind::Unavailable);
        let source = error.source().expect("a source").to_string();
        assert!(source.contains("{webhooks}:") && source.contains("prefix"), "{source}");
    }
    let inline = untagged.claim(&ClaimRequest::new(&event, ClaimToken::random(), LEASE)).await;
    assert!(matches!(inline, Ok(Claim::Fresh { .. })), "without an inbox nothing is asked for");

    let tagged = RedisStore::builder(cluster_pool(&cluster)).prefix("{webhooks}:").build();
    assert!(matches!(accept(&tagged, &event, "test.event").await, Ok(Claim::Fresh { .. })));
    assert_eq!(lease(&tagged, 1).await.len(), 1);
}
