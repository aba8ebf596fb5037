//! Events that come at the same time are accepted by one script, and have nothing else to do with each other.

use tokio::task::JoinSet;
use tower_webhook::inbox::{Filter, Inbox, Parcel};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, RedisStore, StoreErrorKind};

use super::site::{LEASE, PREFIX, accept, lease, listed, now, store_on};
use crate::receiver::{eventually, key};
use crate::support::redis_server::RedisServer;

/// How many scripts the server has run.
fn scripts(server: &RedisServer) -> usize {
    let statistics = server.command(&["INFO", "commandstats"]);
    let calls = |line: &str| line.strip_prefix("cmdstat_eval")?.split(['=', ',']).nth(1)?.parse::<usize>().ok();
    statistics.lines().filter_map(calls).sum()
}

/// Has the server stand still until every one of these is under way, or waits for those that are.
async fn accept_at_once(
    server: &RedisServer,
    store: &RedisStore,
    ids: impl Iterator<Item = String>,
) -> Vec<(String, Result<Claim, StoreErrorKind>)> {
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
async fn value_that_is_no_record_is_in_nobody_elses_way() {
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

/// Each is alone in its script: together they would keep the server from anything else for too long.
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
            store.accept(&claim, &Parcel::new("a head", vec![b'x'; 2 << 20], now())).await
        });
    }
    for claim in accepting.join_all().await {
        assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
    }
    assert_eq!(scripts(&server) - before, 8);
}
