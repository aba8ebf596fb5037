//! Rows 37 to 39: workers that die or stand still, events that always fail, and operators that click twice.

use std::time::Duration;

use axum::http::StatusCode;
use tower_webhook::Outcome;
use tower_webhook::queue::{EventState, Filter, LAPSED, Queue};
use tower_webhook::testing::conformance::Harness;

use super::fixture::{InboxFixture, LEASE, accept_all, body, ids, lease, store_on};
use crate::redis::fixture::{Fixture, pool};
use crate::redis::receiver::{eventually, key};
use crate::support::servers::redis::RedisServer;

async fn clock_of(server: &RedisServer) -> Fixture {
    Fixture::new(pool(server), std::slice::from_ref(server), "inbox").await
}

/// A runtime that ends takes everything with it: nothing is released, nothing is renewed.
#[tokio::test(flavor = "multi_thread")]
async fn row_37_event_of_a_killed_worker_is_run_by_another() {
    let server = RedisServer::start();
    let (doomed, heir) = (InboxFixture::on(&server), InboxFixture::on(&server));
    let answer = heir.deliver("evt_1").await;
    assert_eq!((answer.status, answer.outcome), (StatusCode::OK, Some(Outcome::Accepted)));
    doomed.handler.hold();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.spawn(doomed.worker().run(std::future::pending()));
    assert_eq!(doomed.handler.started(1).await.attempt(), Some(1));
    runtime.shutdown_background();
    assert_eq!(heir.worker().run_until_idle().await, 0, "its lease holds");
    assert_eq!(heir.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
    clock_of(&server).await.pass(LEASE * 2).await;
    assert_eq!(heir.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "it is going to be run");
    assert_eq!(heir.worker().run_until_idle().await, 1);
    assert_eq!(heir.handler.started(1).await.attempt(), Some(2));
    let kept = heir.kept("evt_1").await;
    assert_eq!((kept.state, kept.attempts), (EventState::Completed, 2));
    assert_eq!(&*kept.failures[0].reason, LAPSED);
    assert_eq!(heir.deliver("evt_1").await.outcome, Some(Outcome::Duplicate));
}

/// It comes back when another has done its work, and changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn worker_that_stood_still_past_its_lease_is_fenced() {
    let server = RedisServer::start();
    let (zombie, heir) = (InboxFixture::on(&server), InboxFixture::on(&server));
    heir.deliver("evt_1").await;
    zombie.handler.hold();
    zombie.handler.answers(500);
    let working = tokio::spawn({
        // With a place for one event only: it must not lease the same event once more when its lease has lapsed.
        let worker = zombie.worker().concurrency(1).expect("one");
        async move { worker.run_until_idle().await }
    });
    zombie.handler.started(1).await;
    clock_of(&server).await.pass(LEASE * 2).await;
    assert_eq!(heir.worker().run_until_idle().await, 1);
    assert_eq!(heir.state("evt_1").await, EventState::Completed);
    zombie.handler.go();
    assert_eq!(working.await.expect("no panic"), 1, "and nothing to retry");
    let kept = heir.kept("evt_1").await;
    assert_eq!((kept.state, kept.failures.len()), (EventState::Completed, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn row_38_event_that_always_fails_is_a_dead_letter_with_its_bytes() {
    let server = RedisServer::start();
    let inbox = InboxFixture::on(&server);
    inbox.handler.answers(500);
    inbox.deliver("evt_1").await;
    // At once, though the pauses are random: a retry is due when its pause is over.
    assert_eq!(inbox.worker().run_until_idle().await, 3);
    let kept = inbox.kept("evt_1").await;
    assert_eq!((kept.state, kept.attempts, kept.failures.len()), (EventState::Dead, 3, 3));
    assert_eq!(kept.request.expect("a request").body, body("evt_1"));
    assert_eq!(inbox.deliver("evt_1").await.outcome, Some(Outcome::Duplicate), "the sender need not come again");
    inbox.handler.answers(200);
    inbox.deliver("evt_2").await;
    assert_eq!(inbox.worker().run_until_idle().await, 1, "it holds up nobody");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_39_double_click_is_one_requeue_and_a_completed_event_is_not_replayed() {
    let server = RedisServer::start();
    let inbox = InboxFixture::on(&server);
    inbox.handler.answers(500);
    inbox.deliver("evt_1").await;
    inbox.worker().run_until_idle().await;
    let dead = Filter::all().state(EventState::Dead);
    let (one, other) = tokio::join!(inbox.store.requeue(&dead, false), inbox.store.requeue(&dead, false));
    assert_eq!(one.expect("an answer").events + other.expect("an answer").events, 1);
    inbox.handler.answers(200);
    assert_eq!(inbox.worker().run_until_idle().await, 1);
    for filter in [Filter::all(), Filter::one(key("evt_1")), dead] {
        assert_eq!(inbox.store.requeue(&filter, false).await.expect("an answer").events, 0, "it was done");
    }
    assert_eq!(inbox.worker().run_until_idle().await, 0);
    assert_eq!(inbox.store.requeue(&Filter::one(key("evt_1")), true).await.expect("an answer").events, 1);
    assert_eq!(inbox.worker().run_until_idle().await, 1);
    assert_eq!(inbox.handler.runs(), 5);
}

/// A worker that is told to stop gives back what it has not done.
#[tokio::test(flavor = "multi_thread")]
async fn worker_that_shuts_down_puts_its_event_back() {
    let server = RedisServer::start();
    let inbox = InboxFixture::on(&server);
    inbox.deliver("evt_1").await;
    inbox.handler.hold();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = inbox.worker().grace(Duration::ZERO);
    let working = tokio::spawn(worker.run(async { drop(stopped.await) }));
    inbox.handler.started(1).await;
    stop.send(()).expect("a worker");
    working.await.expect("no panic");
    eventually("it waits again", async || inbox.state("evt_1").await == EventState::Waiting).await;
    assert_eq!(inbox.kept("evt_1").await.attempts, 0, "that was no attempt");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_stores_lease_every_event_once() {
    let server = RedisServer::start();
    let stores = [store_on(&server), store_on(&server)];
    accept_all(&stores[0], (0..300).map(|n| n.to_string())).await;
    let tasks: Vec<_> = (0..8)
        .map(|n| {
            let store = stores[n % 2].clone();
            tokio::spawn(async move {
                let mut all = Vec::new();
                loop {
                    let leased = lease(&store, 7).await;
                    if leased.is_empty() {
                        return all;
                    }
                    all.extend(ids(&leased).into_iter().map(str::to_owned));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("no panic"));
    }
    let count = all.len();
    all.sort();
    all.dedup();
    assert_eq!((count, all.len()), (300, 300));
}

/// As a worker is that shuts down while it asks. Nobody knows the tokens.
#[tokio::test(flavor = "multi_thread")]
async fn events_that_nobody_waits_for_any_more_are_put_back() {
    let server = RedisServer::start();
    let store = store_on(&server);
    accept_all(&store, ["1".to_owned(), "2".to_owned()]).await;
    server.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let asking = tokio::time::timeout(Duration::from_millis(100), lease(&store, 10)).await;
    assert!(asking.is_err(), "the server stands still");
    server.command(&["CLIENT", "UNPAUSE"]);
    let mut all = Vec::new();
    for _ in 0..500 {
        all.extend(lease(&store, 10).await);
        if all.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(all.len(), 2, "long before the lease would end");
    assert!(all.iter().all(|leased| leased.attempt == 1), "it was no attempt");
}
