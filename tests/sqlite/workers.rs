//! What workers make of events: rows 38 and 39, and effects in transactions of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tokio::sync::Semaphore;
use tower_webhook::queue::{EventState, Filter, Queue};
use tower_webhook::{HandlerError, WebhookEvent};

use crate::sqlite::fixture::{Fixture, eventually, key};
use crate::sqlite::inbox_fixture::{InboxFixture, body, create_payments, paid};

#[tokio::test(flavor = "multi_thread")]
async fn row_38_event_that_always_fails_is_a_dead_letter_with_its_bytes() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = move |event: WebhookEvent| {
        let poison = event.id() == "poison";
        counter.fetch_add(usize::from(poison), Ordering::SeqCst);
        async move { if poison { StatusCode::BAD_GATEWAY } else { StatusCode::OK } }
    };
    let inbox = InboxFixture::new(Fixture::new(), Router::new().route("/webhooks", post(handler))).await;
    for id in ["poison", "honest"] {
        assert_eq!(inbox.deliver(id).await, StatusCode::OK);
    }
    let kept = inbox.ends_as("poison", EventState::Dead).await;
    assert_eq!((runs.load(Ordering::SeqCst), kept.attempts, kept.failures.len()), (3, 3, 3));
    assert_eq!(kept.request.expect("the bytes").body, body("poison"));
    inbox.ends_as("honest", EventState::Completed).await;
    assert_eq!(inbox.deliver("poison").await, StatusCode::OK);
    assert_eq!(inbox.worker().run_until_idle().await, 0, "not even if it is delivered again");
}

#[tokio::test(flavor = "multi_thread")]
async fn row_39_operators_who_click_twice_replay_once() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = move |event: WebhookEvent| {
        let run = counter.fetch_add(1, Ordering::SeqCst);
        async move {
            match (event.id(), run) {
                ("broken", 1) => Err(HandlerError::permanent("no such account")),
                _ => Ok(()),
            }
        }
    };
    let inbox = InboxFixture::new(Fixture::new(), Router::new().route("/webhooks", post(handler))).await;
    for (id, state) in [("done", EventState::Completed), ("broken", EventState::Dead)] {
        assert_eq!(inbox.deliver(id).await, StatusCode::OK);
        inbox.ends_as(id, state).await;
    }
    let clicks = async |id: &str, force: bool| {
        let clicks = (0..8).map(|_| {
            let (store, filter) = (inbox.store.clone(), Filter::one(key(id)));
            tokio::spawn(async move { store.requeue(&filter, force).await.expect("an answer").events })
        });
        let clicks = futures_util::future::join_all(clicks.collect::<Vec<_>>()).await;
        clicks.into_iter().map(|click| click.expect("no panic")).sum::<u64>()
    };
    assert_eq!(clicks("done", false).await, 0, "it was done");
    assert_eq!(clicks("broken", false).await, 1);
    assert_eq!(inbox.worker().run_until_idle().await, 1);
    assert_eq!(clicks("broken", false).await, 0, "it is done now");
    assert_eq!(clicks("done", true).await, 1, "forced");
    assert_eq!(inbox.worker().run_until_idle().await, 1);
    assert_eq!(runs.load(Ordering::SeqCst), 4);
}

/// Its lease has lapsed, another worker has done the work, and now it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn zombie_of_a_worker_has_no_effect() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    create_payments(&pool).await;
    let (go, first) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(1)));
    let (gate, turn, ledger) = (go.clone(), first.clone(), pool.clone());
    let handler = move |event: WebhookEvent| {
        let (gate, turn, pool) = (gate.clone(), turn.clone(), ledger.clone());
        async move {
            if turn.try_acquire().is_ok_and(|turn| {
                turn.forget();
                true
            }) {
                gate.acquire().await.expect("never closed").forget();
            }
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            event.complete_in(&mut *transaction).await?;
            sqlx::query("INSERT INTO payments VALUES (?)").bind(event.id()).execute(&mut *transaction).await?;
            Ok::<_, HandlerError>(transaction.commit().await?)
        }
    };
    let inbox = Arc::new(InboxFixture::new(fixture, Router::new().route("/webhooks", post(handler))).await);
    assert_eq!(inbox.deliver("evt_1").await, StatusCode::OK);
    let zombie = tokio::spawn({
        let inbox = inbox.clone();
        async move { inbox.worker().run_until_idle().await }
    });
    eventually("it runs", async || first.available_permits() == 0).await;
    sqlx::query("UPDATE webhook_events SET lease_until = 0").execute(&pool).await.expect("a lease passes");
    let kept = inbox.ends_as("evt_1", EventState::Completed).await;
    assert_eq!(kept.attempts, 2);
    go.add_permits(1);
    zombie.await.expect("no panic");
    assert_eq!(paid(&pool).await, BTreeMap::from([("evt_1".to_owned(), 1)]));
    let kept = inbox.store.get(&key("evt_1")).await.expect("an answer").expect("the event");
    assert_eq!((kept.state, kept.attempts, kept.failures.len()), (EventState::Completed, 2, 1));
}

/// The effect is rolled back with the completion, and why is written down outside of that transaction.
#[tokio::test(flavor = "multi_thread")]
async fn failure_is_noted_down_although_the_transaction_is_rolled_back() {
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    create_payments(&pool).await;
    let (runs, ledger) = (Arc::new(AtomicUsize::new(0)), pool.clone());
    let handler = move |event: WebhookEvent| {
        let (pool, run) = (ledger.clone(), runs.fetch_add(1, Ordering::SeqCst));
        async move {
            let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
            event.complete_in(&mut *transaction).await?;
            sqlx::query("INSERT INTO payments VALUES (?)").bind(event.id()).execute(&mut *transaction).await?;
            if run == 0 {
                transaction.rollback().await?;
                return Err(HandlerError::transient("the bank is closed"));
            }
            Ok(transaction.commit().await?)
        }
    };
    let inbox = InboxFixture::new(fixture, Router::new().route("/webhooks", post(handler))).await;
    assert_eq!(inbox.deliver("evt_1").await, StatusCode::OK);
    let kept = inbox.ends_as("evt_1", EventState::Completed).await;
    assert_eq!((kept.attempts, kept.failures.len()), (2, 1));
    assert!(kept.failures[0].reason.contains("the bank is closed"), "{:?}", kept.failures);
    assert_eq!(paid(&pool).await, BTreeMap::from([("evt_1".to_owned(), 1)]));
}
