//! A handler under the test's control, and what an outer layer sees of the requests.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use tokio::sync::{Semaphore, watch};
use tower_webhook::WebhookEvent;

use super::faulty::soon;

/// A handler under the test's control, and what became of its runs. Clones share it.
#[derive(Clone)]
pub(crate) struct Handler {
    shared: Arc<Shared>,
}

struct Shared {
    started: watch::Sender<Vec<WebhookEvent>>,
    finished: watch::Sender<usize>,
    dropped: watch::Sender<usize>,
    answer: watch::Sender<StatusCode>,
    held: watch::Sender<bool>,
    go: Semaphore,
}

impl Handler {
    pub(crate) fn new() -> Self {
        let shared = Shared {
            started: watch::Sender::default(),
            finished: watch::Sender::default(),
            dropped: watch::Sender::default(),
            answer: watch::Sender::new(StatusCode::OK),
            held: watch::Sender::new(false),
            go: Semaphore::new(0),
        };
        Self { shared: Arc::new(shared) }
    }

    /// What the runs answer that have not answered yet.
    pub(crate) fn answers(&self, status: u16) {
        self.shared.answer.send_replace(StatusCode::from_u16(status).expect("a status"));
    }

    /// From now on runs wait to be told.
    pub(crate) fn hold(&self) {
        self.shared.held.send_replace(true);
    }

    /// Runs that begin from now on do not wait.
    pub(crate) fn hold_no_more(&self) {
        self.shared.held.send_replace(false);
    }

    /// Lets one run go on that waits, or is the next to.
    pub(crate) fn go(&self) {
        self.shared.go.add_permits(1);
    }

    pub(crate) fn runs(&self) -> usize {
        self.shared.started.borrow().len()
    }

    /// The event of the run with this number, from 1, once it has begun.
    pub(crate) async fn started(&self, number: usize) -> WebhookEvent {
        let mut started = self.shared.started.subscribe();
        let events =
            soon(started.wait_for(|events| events.len() >= number)).await.expect("the handler holds the sender");
        events[number - 1].clone()
    }

    /// Ready when this many runs have come to their end.
    pub(crate) async fn finished(&self, runs: usize) {
        reached(&self.shared.finished, runs).await;
    }

    /// Ready when this many runs were dropped half-way.
    pub(crate) async fn dropped(&self, runs: usize) {
        reached(&self.shared.dropped, runs).await;
    }

    pub(crate) fn dropped_so_far(&self) -> usize {
        *self.shared.dropped.borrow()
    }

    /// What the handler does with one event.
    pub(crate) async fn run(self, event: WebhookEvent) -> StatusCode {
        let half_way = CountDrop(Some(self.shared.dropped.clone()));
        self.shared.started.send_modify(|events| events.push(event));
        if *self.shared.held.borrow() {
            self.shared.go.acquire().await.expect("the semaphore is never closed").forget();
        }
        half_way.passed();
        self.shared.finished.send_modify(|runs| *runs += 1);
        *self.shared.answer.borrow()
    }
}

/// What an outer layer sees of the requests. Clones share it.
#[derive(Clone)]
pub(crate) struct Requests {
    begun: watch::Sender<usize>,
    ended: watch::Sender<usize>,
    dropped: watch::Sender<usize>,
}

impl Requests {
    pub(super) fn new() -> Self {
        Self { begun: watch::Sender::default(), ended: watch::Sender::default(), dropped: watch::Sender::default() }
    }

    pub(crate) async fn begun(&self, requests: usize) {
        reached(&self.begun, requests).await;
    }

    /// Ready when this many were answered or dropped.
    pub(crate) async fn ended(&self, requests: usize) {
        reached(&self.ended, requests).await;
    }

    /// Ready when this many were dropped before their answer.
    pub(crate) async fn dropped(&self, requests: usize) {
        reached(&self.dropped, requests).await;
    }

    pub(super) async fn watch(self, request: Request, next: Next) -> Response {
        let _ended = CountDrop(Some(self.ended.clone()));
        let unanswered = CountDrop(Some(self.dropped.clone()));
        self.begun.send_modify(|requests| *requests += 1);
        let response = next.run(request).await;
        unanswered.passed();
        response
    }
}

/// Counts itself when it is dropped.
struct CountDrop(Option<watch::Sender<usize>>);

impl CountDrop {
    fn passed(mut self) {
        self.0 = None;
    }
}

impl Drop for CountDrop {
    fn drop(&mut self) {
        if let Some(counter) = &self.0 {
            counter.send_modify(|count| *count += 1);
        }
    }
}

async fn reached(counter: &watch::Sender<usize>, at_least: usize) {
    let mut counts = counter.subscribe();
    soon(counts.wait_for(|count| *count >= at_least)).await.expect("the caller holds the sender");
}
