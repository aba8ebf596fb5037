//! Passwords are told to the server, and to nobody else.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use tower_webhook::store::{ClaimRequest, ClaimToken, RedisStore, Store};

use crate::redis::fixture::pool_of;
use crate::redis::receiver::{Receiver, assert_unavailable, key};
use crate::support::logs::Logs;
use crate::support::servers::redis::RedisServer;

const PASSWORD: &str = "hunter2-and-more";

fn assert_discreet(what: &str, text: &str) {
    assert!(!text.contains("hunter2") && !text.contains("redis://"), "{what}: {text}");
}

#[tokio::test]
async fn password_is_in_no_debug_error_or_log() {
    let server = RedisServer::start();
    let (logs, _listening) = Logs::capture();
    server.command(&["ACL", "SETUSER", "app", "on", ">another", "~*", "+@all"]);
    for user in ["app", "nobody", ""] {
        let pool = pool_of(&format!("redis://{user}:{PASSWORD}@{}/", server.address()));
        let builder = RedisStore::builder(pool.clone());
        assert_discreet("the builder", &format!("{builder:?} {builder:#?}"));
        let receiver = Receiver::with_pool(pool);
        assert_discreet("the store", &format!("{:?} {:#?}", receiver.store, receiver.store));
        assert_discreet("the layer", &format!("{:?}", receiver.layer));
        let event = key("evt_1");
        let claim = ClaimRequest::new(&event, ClaimToken::random(), Duration::from_secs(30));
        let error = receiver.store.claim(&claim).await.expect_err("a wrong password");
        let causes = successors(Some(&error as &dyn Error), |cause| (*cause).source());
        causes.for_each(|cause| assert_discreet("the error", &format!("{cause} {cause:?}")));
        assert_unavailable(&receiver.deliver("evt_1").await);
        assert!(receiver.store.check().await.is_err());
    }
    assert!(!logs.lines().is_empty());
    logs.lines().iter().for_each(|line| assert_discreet("the log", &line.text));
}

#[tokio::test]
async fn right_password_works() {
    let server = RedisServer::start();
    server.command(&[
        "ACL",
        "SETUSER",
        "app",
        "on",
        &format!(">{PASSWORD}"),
        "~tower-webhook:*",
        "-@all",
        "+@connection",
    ]);
    // What the store needs, and no more.
    server.command(&["ACL", "SETUSER", "app", "+set", "+get", "+del", "+eval", "+evalsha"]);
    let receiver = Receiver::with_pool(pool_of(&format!("redis://app:{PASSWORD}@{}/", server.address())));
    receiver.store.check().await.expect("a store that works");
    assert!(receiver.deliver("evt_1").await.status.is_success());
    receiver.check(&server);
}
