//! The inbox of processes that are killed, or are two. Row 37.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use tower_webhook::WebhookEvent;
use tower_webhook::queue::{EventState, Filter, LAPSED, Page, Queue};

use crate::sqlite::fixture::{Fixture, eventually};
use crate::sqlite::inbox_fixture::{InboxFixture, create_payments, paid, payments, tireless};
use crate::sqlite::processes::Process;
use crate::sqlite::queue::{accept, lease, stored_request};

#[tokio::test(flavor = "multi_thread")]
async fn accepted_events_survive_a_killed_process() {
    let fixture = Fixture::new();
    let mut process = Process::start("accept", &fixture.path());
    let mut accepted = Vec::new();
    while accepted.len() < 300 {
        accepted.push(process.says("accepted").expect("events"));
    }
    process.child.kill().expect("SIGKILL");
    while let Some(id) = process.says("accepted") {
        accepted.push(id);
    }
    let store = fixture.store().await;
    let leased: BTreeMap<_, _> =
        lease(&store, 1_000_000).await.into_iter().map(|leased| (leased.key.id().to_owned(), leased)).collect();
    println!("{} accepted, {} found", accepted.len(), leased.len());
    for id in accepted {
        assert_eq!(leased.get(&id).expect("what was accepted").request, stored_request(&id));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_37_event_of_a_killed_worker_is_run_again() {
    let fixture = Fixture::new();
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let handler = move |event: WebhookEvent| {
        assert_eq!(event.attempt(), Some(2));
        counter.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    let path = fixture.path();
    let inbox = InboxFixture::new(fixture, Router::new().route("/webhooks", post(handler))).await;
    assert_eq!(inbox.deliver("evt_1").await, StatusCode::OK);
    let mut process = Process::start("hang", &path);
    assert_eq!(process.says("started").as_deref(), Some("evt_1"));
    assert_eq!(inbox.worker().run_until_idle().await, 0, "it is the other one's");
    process.child.kill().expect("SIGKILL");
    let kept = inbox.ends_as("evt_1", EventState::Completed).await;
    assert_eq!((runs.load(Ordering::SeqCst), kept.attempts), (1, 2));
    let reasons: Vec<_> = kept.failures.iter().map(|attempt| &*attempt.reason).collect();
    assert_eq!(reasons, [LAPSED]);
    assert!(kept.failures[0].ended_at > kept.failures[0].started_at);
    assert_eq!(inbox.deliver("evt_1").await, StatusCode::OK);
    assert_eq!(inbox.worker().run_until_idle().await, 0, "a duplicate");
}

#[test]
fn two_processes_lease_every_event_once() {
    const EVENTS: usize = 400;
    let fixture = Fixture::new();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = fixture.store().await;
        for n in 0..EVENTS {
            accept(&store, &n.to_string()).await;
        }
    });
    let mut processes = [(); 2].map(|()| Process::start("drain", &fixture.path()));
    for process in &mut processes {
        process.says("ready").expect("a process that is ready");
    }
    processes.iter_mut().for_each(Process::go);
    let leased = processes.map(|mut process| {
        std::thread::spawn(move || std::iter::from_fn(|| process.says("leased")).collect::<Vec<_>>())
    });
    let leased = leased.map(|reading| reading.join().expect("no panic"));
    println!("{} and {}", leased[0].len(), leased[1].len());
    let mut all: Vec<usize> = leased.concat().iter().map(|id| id.parse().expect("a number")).collect();
    all.sort_unstable();
    assert_eq!(all, (0..EVENTS).collect::<Vec<_>>());
}

/// Killed at any point of the transaction, and before and after it.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_double_no_effect_and_lose_none() {
    const EVENTS: usize = 150;
    let fixture = Fixture::new();
    let pool = fixture.pool().await;
    create_payments(&pool).await;
    let (path, handlers) = (fixture.path(), payments(pool.clone()));
    let inbox = InboxFixture::new(fixture, handlers).await;
    for n in 0..EVENTS {
        assert_eq!(inbox.deliver(&format!("evt_{n}")).await, StatusCode::OK);
    }
    for round in 0..6 {
        let mut process = Process::start("pay", &path);
        let word = if round % 2 == 0 { "about to pay" } else { "paid" };
        for _ in 0..5 + round {
            process.says(word).expect("work");
        }
        process.child.kill().expect("SIGKILL");
    }
    let worker = inbox.worker().retries(tireless());
    eventually("everything is done", async || {
        worker.run_until_idle().await;
        inbox.store.counts().await.expect("an answer").completed == EVENTS as u64
    })
    .await;
    let paid = paid(&pool).await;
    assert_eq!((paid.len(), paid.values().max()), (EVENTS, Some(&1)), "{paid:?}");
    let killed = inbox.store.list(&Filter::all(), &Page::first(EVENTS)).await.expect("an answer");
    println!("{} were taken over", killed.iter().filter(|event| event.attempts > 1).count());
}
