//! Events that come at the same time are accepted by one script, and have nothing else to do with each other.

use std::time::Duration;

use tokio::task::JoinSet;
use tower_webhook::queue::{Filter, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, RedisStore, StoreErrorKind};

use super::fixture::{LEASE, PREFIX, accept, lease, listed, now, store_on};
use crate::redis::fixture::pool_of;
use crate::redis::receiver::{eventually, key};
use crate::support::servers::redis::RedisServer;

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> usize {
    let statistics = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| line.strip_prefix("cmdstat_eval")?.split(['=', ',']).nth(1)?.parse::<usize>().ok();
    statistics.lines().filter_map(calls).sum()
}

/// Has the server stand still until every one of these has begun.
async fn accept_at_once(
    server: &RedisServer,
    store: &RedisStore,
    ids: impl Iterator<Item = String>,
) -> Vec<(String, Result<Claim, StoreErrorKind>)> {
    // Connected before: the client does not wait long for that.
    store.check().await.map(drop).expect("a server that works");
    server.freeze();
    let mut accepting = JoinSet::new();
    let begun = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let mut count = 0;
    for id in ids {
        count += 1;
        let (store, begun) = (store.clone(), begun.clone());
        accepting.spawn(async move {
            begun.add_permits(1);
            let claim = accept(&store, &key(&id), "test.event").await;
            (id, claim.map_err(|error| error.kind()))
        });
    }
    eventually("all have begun", async || begun.available_permits() == count).await;
    server.thaw();
    accepting.join_all().await
}

#[tokio::test(flavor = "multi_thread")]
async fn events_that_come_together_take_few_scripts_and_each_id_is_accepted_once() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept(&store, &key("first"), "test.event").await.map(drop).expect("an answer");
    let before = scripts(&server);
    let ids = (0..200).map(|n| (n % 100).to_string());
    let answers = accept_at_once(&server, &store, ids).await;
    for n in 0..100 {
        let of_one: Vec<_> = answers.iter().filter(|(id, _)| *id == n.to_string()).map(|(_, claim)| claim).collect();
        let fresh = of_one.iter().filter(|claim| matches!(claim, Ok(Claim::Fresh { .. }))).count();
        let known = of_one.iter().filter(|claim| matches!(claim, Ok(Claim::Accepted { same_body: true }))).count();
        assert_eq!((fresh, known), (1, 1), "{n}: {of_one:?}");
    }
    let scripts = scripts(&server) - before;
    assert!(scripts <= 50, "{scripts} scripts for 200 events");
    assert_eq!(listed(&store, &Filter::all()).await.len(), 101);
}

#[tokio::test(flavor = "multi_thread")]
async fn value_that_is_no_record_does_not_block_other_events() {
    let server = RedisServer::start();
    let store = store_on(&server);
    server.command(&["HSET", &format!("{PREFIX}{}", key("13")), "no", "record"]);
    server.command(&["SET", &format!("{PREFIX}{}", key("14")), "no record"]);
    for (id, claim) in accept_at_once(&server, &store, (0..50).map(|n| n.to_string())).await {
        match &*id {
            "13" | "14" => assert_eq!(claim, Err(StoreErrorKind::Corrupt), "{id}"),
            _ => assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{id}: {claim:?}"),
        }
    }
    assert_eq!(lease(&store, 100).await.len(), 48);
}

/// A script that fails is not rolled back: what it had accepted until then is found by the next delivery, and runs once.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_script_that_fails_half_way_are_accepted_once() {
    let server = RedisServer::start();
    server.command(&[
        "ACL",
        "SETUSER",
        "weak",
        "on",
        ">pw",
        "&*",
        "+@all",
        &format!("~{PREFIX}inbox:*"),
        "~*check:*",
        "~*rights:*",
    ]);
    for n in (0..50).filter(|n| n % 10 != 7) {
        server.command(&["ACL", "SETUSER", "weak", &format!("~{PREFIX}{}", key(&n.to_string()))]);
    }
    let url = format!("redis://weak:pw@{}/", server.address());
    let weak = RedisStore::builder(pool_of(&url)).prefix(PREFIX).timeout(Duration::from_secs(10)).build();
    let ids = || (0..50).map(|n: u32| n.to_string());
    let first = accept_at_once(&server, &weak, ids()).await;
    for (id, claim) in &first {
        assert!(!id.ends_with('7') || *claim == Err(StoreErrorKind::Unavailable), "{id}: {claim:?}");
    }
    assert!(first.iter().filter(|(_, claim)| claim.is_err()).count() > 5, "some were in a script with these");
    let strong = store_on(&server);
    for id in ids() {
        let claim = accept(&strong, &key(&id), "test.event").await;
        assert!(matches!(claim, Ok(Claim::Fresh { .. } | Claim::Accepted { .. })), "{id}: {claim:?}");
    }
    let mut leased: Vec<u32> =
        lease(&strong, 100).await.iter().map(|leased| leased.key.id().parse().expect("a number")).collect();
    leased.sort_unstable();
    assert!(leased.into_iter().eq(0..50));
}

/// Each is alone in its scripts, one that finds that it is new and one that accepts it, and passes through neither.
#[tokio::test(flavor = "multi_thread")]
async fn large_events_are_accepted_one_by_one() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept(&store, &key("first"), "test.event").await.map(drop).expect("an answer");
    let before = scripts(&server);
    let mut accepting = JoinSet::new();
    for n in 0..8 {
        let store = store.clone();
        accepting.spawn(async move {
            let key = key(&n.to_string());
            let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
            store.enqueue(&claim, &StoredRequest::new("a head", vec![b'x'; 2 << 20], now())).await
        });
    }
    for claim in accepting.join_all().await {
        assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
    }
    assert_eq!(scripts(&server) - before, 16);
}
