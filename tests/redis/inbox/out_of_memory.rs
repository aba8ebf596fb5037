//! A server at its `maxmemory` takes no new event, and workers free its memory.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::queue::{EventState, Filter, Queue};
use tower_webhook::store::{Completion, Hold, Store};

use super::fixture::{InboxFixture, LEASE, RETENTION, accept, accept_all, builder_on, lease, store_on};
use crate::redis::receiver::{eventually, key};
use crate::support::servers::redis::RedisServer;

fn fill(server: &RedisServer) {
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
}

/// At its real limit, and not one that nothing can come below: what the workers free is used by the next events.
#[tokio::test(flavor = "multi_thread")]
async fn full_inbox_is_drained_to_the_end_and_accepts_again() {
    let server = RedisServer::start();
    let inbox = InboxFixture::over(builder_on(&server).keep_completed_bodies(Duration::ZERO).build());
    let used = server.command(&["INFO", "memory"]);
    let used: usize =
        used.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok()).expect("bytes");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    server.command(&["CONFIG", "SET", "maxmemory", &(used + (8 << 20)).to_string()]);
    let mut accepted = 0;
    loop {
        let answer = inbox.deliver_large(&accepted.to_string(), 100_000).await;
        if answer.status != StatusCode::OK {
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            break;
        }
        accepted += 1;
    }
    assert!(accepted > 20, "{accepted} events filled it");
    let report = inbox.store.check().await.expect("a report, so that a worker can start");
    assert!(report.warnings.iter().any(|warning| warning.contains("maxmemory")), "{report:?}");
    assert_eq!(inbox.worker().run_until_idle().await, accepted);
    let counts = inbox.store.counts().await.expect("an answer");
    assert_eq!((counts.waiting, counts.running, counts.completed), (0, 0, accepted as u64));
    eventually("there is room again", async || inbox.deliver_large("again", 100_000).await.status == StatusCode::OK)
        .await;
    assert_eq!(inbox.worker().run_until_idle().await, 1);
}

/// Each verb on an event, and each of an operator's.
#[tokio::test(flavor = "multi_thread")]
async fn full_server_takes_every_verb_but_accept() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, (0..6).map(|n| n.to_string())).await;
    fill(&server);
    let refused = accept(&store, &key("new"), "test.event").await.expect_err("it is full");
    assert!(std::error::Error::source(&refused).expect("a source").to_string().contains("OOM"), "{refused:?}");
    let leased = lease(&store, 5).await;
    assert_eq!(leased.len(), 5);
    let held = async |hold: Result<Hold, _>, verb: &str| assert_eq!(hold.expect(verb), Hold::Held, "{verb}");
    for leased in &leased {
        held(store.renew(&leased.claim(LEASE)).await, "renew").await;
        held(store.start(&leased.claim(LEASE)).await, "start").await;
    }
    held(store.complete(&leased[0].claim(LEASE), &Completion::succeeded("OK", RETENTION)).await, "complete").await;
    held(store.retry(&leased[1].claim(LEASE), RETENTION, "flaky").await, "retry").await;
    held(store.bury(&leased[2].claim(LEASE), "hopeless").await, "bury").await;
    held(store.bury(&leased[3].claim(LEASE), "hopeless").await, "bury").await;
    held(store.release(&leased[4].key, leased[4].token).await, "release").await;
    let dead = Filter::one(leased[2].key.clone());
    assert_eq!(store.requeue(&dead, false).await.expect("requeue").events, 1);
    assert_eq!(store.discard(&Filter::one(leased[1].key.clone()), RETENTION).await.expect("discard"), 1);
    assert_eq!(store.forget(&Filter::all().state(EventState::Dead)).await.expect("forget"), 1);
    let counts = store.counts().await.expect("counts");
    assert_eq!((counts.waiting, counts.running, counts.completed, counts.dead), (3, 0, 2, 0));
    assert_eq!(store.list(&Filter::all(), &tower_webhook::queue::Page::first(9)).await.expect("list").len(), 5);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    accept_all(&store, ["new".to_owned()]).await;
    let inbox = InboxFixture::on(&server);
    assert_eq!(inbox.deliver("0").await.outcome, Some(Outcome::Duplicate));
}
