//! Workers are woken: from other instances by NOTIFY.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use tokio::sync::mpsc;
use tower_webhook::queue::Queue;
use tower_webhook::{WebhookEvent, Worker};

use super::worker::deliver;
use crate::postgres::fixture::{Fixture, PATIENCE, eventually, key, run_on};

/// How many listen for this table.
fn listening() -> &'static str {
    "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN \"tower\\_webhook\\_' || 'events'::regclass::oid || '\"%'"
}

#[tokio::test]
async fn worker_of_another_instance_is_woken_by_an_acceptance_even_after_its_connection_was_lost() {
    let fixture = Fixture::new().await;
    let (ran, mut runs) = mpsc::unbounded_channel();
    let handler = post(move |event: WebhookEvent| async move { ran.send(event.id().to_owned()).expect("a test") });
    let service = Router::new().route("/webhooks", handler);
    // It would look by itself in an hour.
    let worker = Worker::new(fixture.another(), service).poll_every(Duration::from_secs(3600)).expect("a time");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async move { _ = stopped.await }));
    for id in ["evt_1", "evt_2"] {
        eventually("it listens", async || fixture.count(listening()).await == 1).await;
        deliver(&fixture.store, id).await;
        let ran = tokio::time::timeout(PATIENCE, runs.recv()).await.expect("woken");
        assert_eq!(ran.as_deref(), Some(id));
        let cut = listening().replace("count(*)", "pg_terminate_backend(pid, 10000)");
        assert_eq!(run_on(&mut crate::postgres::fixture::shared().connect().await, fixture.about(&cut)).await, 1);
    }
    stop.send(()).expect("it works");
    working.await.expect("no panic");
}

#[tokio::test]
async fn store_that_is_dropped_listens_no_more() {
    let fixture = Fixture::new().await;
    let store = fixture.another();
    for _ in 0..3 {
        drop(store.wake());
    }
    eventually("it listens", async || fixture.count(listening()).await == 1).await;
    drop(store);
    eventually("it does not", async || fixture.count(listening()).await == 0).await;
}

/// Each runtime has its own I/O: what listened on one that has ended listens on the next.
#[test]
fn store_listens_again_on_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let fixture = runtime().block_on(Fixture::new());
    for id in ["evt_1", "evt_2"] {
        runtime().block_on(async {
            let woken = fixture.store.wake();
            assert_eq!(super::queue::accept(&fixture.store, &key(id)).await, super::queue::KEPT);
            tokio::time::timeout(PATIENCE, woken).await.expect("woken");
        });
    }
}
