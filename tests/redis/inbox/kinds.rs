//! Events that a worker leaves to others: many of them, and none loses its place.

use tower_webhook::EventKey;
use tower_webhook::queue::{Filter, KindLimits, LeaseRequest, Leased, Queue};
use tower_webhook::store::{ClaimRequest, ClaimToken, Hold, RedisStore, Store};

use super::fixture::{LEASE, PREFIX, accept, accept_all, ids, lease, store_on, stored_request};
use crate::support::servers::redis::RedisServer;

async fn lease_but(store: &RedisStore, limit: usize, types: &[Box<str>]) -> Vec<Leased> {
    let mut request = LeaseRequest::new(limit, LEASE);
    let limits = types.iter().fold(KindLimits::new(usize::MAX), |limits, kind| limits.with(kind.clone(), 0));
    request.per_type = Some(&limits);
    store.lease(&request).await.expect("an answer")
}

fn at(endpoint: &str, id: &str) -> EventKey {
    EventKey::new(endpoint, None, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn kind_behind_many_of_another_is_found_and_these_keep_their_order() {
    let server = RedisServer::start();
    let store = store_on(&server);
    for n in 0..1500 {
        accept(&store, &at("/hooks", &n.to_string()), "slow").await.map(drop).expect("an answer");
    }
    for n in ["first", "second"] {
        accept(&store, &at("/hooks", n), "quick").await.map(drop).expect("an answer");
    }
    let slow = ["slow".into()];
    assert_eq!(ids(&lease_but(&store, 1, &slow).await), ["first"]);
    assert_eq!(ids(&lease_but(&store, 9, &slow).await), ["second"]);
    assert!(lease_but(&store, 9, &slow).await.is_empty());
    accept(&store, &at("/hooks", "last"), "slow").await.map(drop).expect("an answer");
    let mut all = Vec::new();
    while all.len() < 1501 {
        let leased = lease(&store, 100).await;
        assert!(leased.iter().all(|leased| leased.attempt == 1), "being left out is no attempt");
        all.extend(leased.into_iter().map(|leased| leased.key.id().to_owned()));
    }
    let expected: Vec<_> = (0..1500).map(|n| n.to_string()).chain(["last".to_owned()]).collect();
    assert_eq!(all, expected);
    assert!(lease(&store, 1).await.is_empty());
}

/// What has been due for longer goes first, wherever it comes from.
#[tokio::test(flavor = "multi_thread")]
async fn retried_event_takes_its_place_by_when_it_is_due() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned(), "2".to_owned()]).await;
    let first = lease(&store, 1).await.remove(0);
    let hold = store.retry(&first.claim(LEASE), std::time::Duration::from_millis(1), "flaky").await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    assert_eq!(ids(&lease(&store, 1).await), ["2"], "it was due before");
    accept_all(&store, ["3".to_owned()]).await;
    let mut rest = Vec::new();
    while rest.len() < 2 {
        rest.extend(lease(&store, 2).await);
    }
    rest.sort_by(|one, other| one.key.cmp(&other.key));
    assert_eq!(ids(&rest), ["1", "3"]);
}

/// The server's clock was set back, and a million events share its last millisecond.
#[tokio::test(flavor = "multi_thread")]
async fn arrivals_have_room_for_their_numbers() {
    let server = RedisServer::start();
    let (store, events) = (store_on(&server), format!("{PREFIX}inbox:events"));
    server.command(&["XADD", &events, "5000000000000-999999", "k", "v"]);
    server.command(&["XDEL", &events, "5000000000000-999999"]);
    accept_all(&store, (0..3).map(|n| n.to_string())).await;
    let arrivals: Vec<_> = store.list(&Filter::all(), &tower_webhook::queue::Page::first(9)).await.expect("an answer");
    let arrivals: Vec<_> = arrivals.iter().map(|event| event.arrival).collect();
    assert_eq!(arrivals, [0, 1, 2].map(|n| 5_000_000_000_001_000_000 + n));
}

/// Somebody deleted the record that tells duplicates, and not the event.
#[tokio::test(flavor = "multi_thread")]
async fn accepted_event_without_its_record_is_run_nevertheless() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let (key, token) = (at("/hooks/{tenant}", "evt_1"), ClaimToken::random());
    let claim = ClaimRequest::new(&key, token, LEASE);
    store.enqueue(&claim, &stored_request("evt_1")).await.map(drop).expect("an answer");
    assert_eq!(server.command(&["DEL", &format!("{PREFIX}{{}}{key}")]), "1\n");
    let leased = lease(&store, 10).await;
    assert_eq!((ids(&leased), leased[0].attempt), (vec!["evt_1"], 1));
    assert_eq!(store.release(&key, leased[0].token).await.expect("an answer"), Hold::Held);
}
