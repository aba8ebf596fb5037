//! Idle workers are told of events that other processes accept.

use std::time::Duration;

use tower_webhook::queue::Queue;
use tower_webhook::store::{Hold, Store};

use super::fixture::{InboxFixture, LEASE, accept_all, lease, store_on};
use crate::redis::receiver::eventually;
use crate::support::servers::redis::RedisServer;

/// Only the stream can tell it: the worker would look again in an hour.
#[tokio::test(flavor = "multi_thread")]
async fn idle_worker_is_woken_by_another_process() {
    let server = RedisServer::start();
    let (inbox, elsewhere) = (InboxFixture::on(&server), InboxFixture::on(&server));
    let worker = inbox.worker().poll_every(Duration::from_secs(3600)).expect("an interval");
    let working = tokio::spawn(worker.run(std::future::pending()));
    for n in 1..=5 {
        server.wait_until(&["INFO", "clients"], "blocked_clients:1");
        elsewhere.deliver(&n.to_string()).await;
        inbox.handler.started(n).await;
    }
    // Its connection breaks, and it listens again.
    server.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    elsewhere.deliver("6").await;
    inbox.handler.started(6).await;
    working.abort();
}

/// What others have read is no reason to wake up again and again.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_by_others_wakes_nobody_twice() {
    let server = RedisServer::start();
    let (one, other) = (store_on(&server), store_on(&server));
    assert!(lease(&one, 1).await.is_empty());
    accept_all(&other, (0..3).map(|n| n.to_string())).await;
    assert_eq!(lease(&other, 10).await.len(), 3);
    let look = async || {
        let woken = one.wake();
        let leased = lease(&one, 1).await;
        assert!(leased.is_empty());
        woken.await;
    };
    let mut woken = 0;
    while tokio::time::timeout(Duration::from_millis(500), look()).await.is_ok() {
        woken += 1;
        assert!(woken < 3, "there is nothing to lease");
    }
    server.wait_until(&["INFO", "clients"], "blocked_clients:1");
}

#[tokio::test(flavor = "multi_thread")]
async fn store_that_is_dropped_listens_no_more() {
    let server = RedisServer::start();
    let store = store_on(&server);
    let clone = store.clone();
    let waiting = tokio::spawn(async move { clone.wake().await });
    server.wait_until(&["INFO", "clients"], "blocked_clients:1");
    waiting.abort();
    drop(store);
    eventually("nobody waits", async || server.command(&["INFO", "clients"]).contains("blocked_clients:0")).await;
}

/// There is nothing new to lease, and workers renew all the time.
#[tokio::test(flavor = "multi_thread")]
async fn renewal_wakes_nobody() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned()]).await;
    let leased = lease(&store, 2).await.remove(0);
    assert!(lease(&store, 1).await.is_empty());
    let woken = store.wake();
    assert_eq!(store.renew(&leased.claim(LEASE)).await.expect("an answer"), Hold::Held);
    assert!(tokio::time::timeout(Duration::from_millis(200), woken).await.is_err(), "a renewal is no news");
    let woken = store.wake();
    assert_eq!(store.release(&leased.key, leased.token).await.expect("an answer"), Hold::Held);
    tokio::time::timeout(Duration::from_secs(10), woken).await.expect("it is due");
}
