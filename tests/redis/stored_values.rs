//! What is in Redis, for people who look, and what the store makes of what it did not write.

use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, RedisStore, Store, StoreErrorKind};

use crate::redis::fixture::{PATIENT, pool, store};
use crate::support::servers::redis::RedisServer;

const LEASE: Duration = Duration::from_secs(30);
const RETENTION: Duration = Duration::from_secs(3600);
const KEY: &str = "tower-webhook:5.0:/hook//evt_1";

#[tokio::test]
async fn record_says_what_became_of_the_event() {
    let server = RedisServer::start();
    let store = store(pool(&server));
    let key = EventKey::new("/hook", None, "evt_1");
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(Some("invoice.paid"));
    assert!(matches!(store.claim(&claim).await, Ok(Claim::Fresh { .. })));
    let value = server.command(&["GET", KEY]);
    assert!(value.starts_with("r:") && value.ends_with(":invoice.paid\n"), "{value}");
    let left: u64 = server.command(&["PTTL", KEY]).trim().parse().expect("a number");
    assert!((1..=30_000).contains(&left), "the lease: {left}");

    let hold = store.complete(&claim, &Completion::failed("no such account", RETENTION)).await;
    assert_eq!(hold.expect("an answer"), Hold::Held);
    let value = server.command(&["GET", KEY]);
    assert!(value.starts_with("f:") && value.ends_with(":no such account\n"), "{value}");
    let left: u64 = server.command(&["PTTL", KEY]).trim().parse().expect("a number");
    assert!((30_001..=3_600_000).contains(&left), "the retention: {left}");
}

#[tokio::test]
async fn prefixes_keep_stores_apart() {
    let server = RedisServer::start();
    let key = EventKey::new("/hook", None, "evt_1");
    for prefix in ["a:", "b:", ""] {
        let store = RedisStore::builder(pool(&server)).timeout(PATIENT).prefix(prefix).build();
        let claim = store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LEASE)).await;
        assert!(matches!(claim, Ok(Claim::Fresh { .. })));
    }
    let mut keys = server.keys();
    keys.sort();
    assert_eq!(keys, ["5.0:/hook//evt_1", "a:5.0:/hook//evt_1", "b:5.0:/hook//evt_1"]);
}

/// A value that somebody else put there is neither a claim to respect nor one to overwrite.
#[tokio::test]
async fn foreign_values_are_corrupt_and_left_alone() {
    let server = RedisServer::start();
    let store = store(pool(&server));
    let key = EventKey::new("/hook", None, "evt_1");
    let token = ClaimToken::random();
    let claim = ClaimRequest::new(&key, token, LEASE);
    for put in [["SET", KEY, "something else"], ["LPUSH", KEY, "a list"]] {
        server.command(&put);
        let errors = [
            store.claim(&claim).await.map(drop),
            store.renew(&claim).await.map(drop),
            store.complete(&claim, &Completion::succeeded("OK", RETENTION)).await.map(drop),
            store.release(&key, token).await.map(drop),
        ];
        for error in errors {
            assert_eq!(error.expect_err("not a record").kind(), StoreErrorKind::Corrupt, "{put:?}");
        }
        assert_eq!(server.command(&["DEL", KEY]), "1\n");
    }
}
