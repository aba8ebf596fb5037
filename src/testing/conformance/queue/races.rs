//! Many callers at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::super::Harness;
use super::super::fixture::{FRESH, LONG, without_attempt};
use super::fixture::{ACCEPTED, NewEvent, QueueFixture};
use crate::store::queue::{EventState, Filter, LeaseRequest, Leased, Order, Queue};
use crate::store::{ClaimToken, Completion, Hold, Store};

const TASKS: usize = 64;
const EVENTS: usize = 200;

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    concurrent_deliveries_are_enqueued_once(harness).await;
    claims_and_enqueues_have_one_winner(harness).await;
    concurrent_workers_get_every_event_once(harness).await;
    concurrent_workers_keep_the_order(harness).await;
    concurrent_requeues_are_one(harness).await;
}

/// Of 64 concurrent enqueues of one event exactly one is fresh, and the event is queued once.
pub async fn concurrent_deliveries_are_enqueued_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("concurrent_deliveries_are_enqueued_once", harness).await;
    let event = NewEvent::new("evt_1");
    let answers = at_once(TASKS, |_| {
        let (store, event) = (queue.store.clone(), event.clone());
        async move { store.enqueue(&event.claim(ClaimToken::random(), LONG), &event.request).await }
    });
    let answers: Vec<_> =
        answers.await.into_iter().map(|answer| without_attempt(queue.answered("accept", answer))).collect();
    queue.verify("fresh", answers.iter().filter(|answer| **answer == FRESH).count(), 1);
    queue.verify("accepted", answers.iter().filter(|answer| **answer == ACCEPTED).count(), TASKS - 1);
    queue.leases(&event).await;
    queue.leases_nothing().await;
}

/// During a rolling deploy, some instances claim an event and some enqueue it: the first call wins.
pub async fn claims_and_enqueues_have_one_winner(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("claims_and_enqueues_have_one_winner", harness).await;
    for round in 0..10 {
        let event = NewEvent::new(&format!("evt_{round}"));
        let answers = at_once(16, |n| {
            let (store, event) = (queue.store.clone(), event.clone());
            async move {
                let request = event.claim(ClaimToken::random(), LONG);
                match n % 2 {
                    0 => store.claim(&request).await,
                    _ => store.enqueue(&request, &event.request).await,
                }
            }
        });
        let answers =
            answers.await.into_iter().map(|answer| without_attempt(queue.answered("claim or enqueue", answer)));
        queue.verify("fresh", answers.filter(|answer| *answer == FRESH).count(), 1);
    }
}

/// No event is left over, and none is run by two workers.
pub async fn concurrent_workers_get_every_event_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("concurrent_workers_get_every_event_once", harness).await;
    for n in 0..EVENTS {
        queue.adds(NewEvent::new(&n.to_string())).await;
    }
    let leased = work(&queue, 8, 7).await;
    let keys: HashSet<_> = leased.iter().map(|leased| &leased.key).collect();
    queue.verify("events", (leased.len(), keys.len()), (EVENTS, EVENTS));
    let counts = queue.answered("counts", queue.store.counts().await);
    queue.verify("completed", (counts.waiting, counts.running, counts.completed), (0, 0, EVENTS as u64));
}

/// Concurrent workers keep the order within each of ten resources.
pub async fn concurrent_workers_keep_the_order(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("concurrent_workers_keep_the_order", harness).await;
    for n in 0..100 {
        let resource = format!("resource {}", n % 10);
        queue.adds(NewEvent::new(&n.to_string()).ordered(Order::of(resource))).await;
    }
    let mut runs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for leased in work(&queue, 8, 3).await {
        let n: usize = leased.key.id().parse().unwrap_or_default();
        runs.entry(n % 10).or_default().push(n);
    }
    queue.verify("resources", runs.len(), 10);
    for (resource, run) in runs {
        let expected: Vec<_> = (0..10).map(|n| n * 10 + resource).collect();
        queue.verify("order", run, expected);
    }
}

/// Of sixteen concurrent requeues of one event, one requeues it.
pub async fn concurrent_requeues_are_one(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new("concurrent_requeues_are_one", harness).await;
    let event = queue.adds(NewEvent::new("evt_1")).await;
    queue.buries(&queue.leases(&event).await, "hopeless", Hold::Held).await;
    let requeued = at_once(16, |_| {
        let (store, filter) = (queue.store.clone(), Filter::all().state(EventState::Dead));
        async move { store.requeue(&filter, false).await }
    });
    let requeued: u64 = requeued.await.into_iter().map(|answer| queue.answered("requeue", answer).events).sum();
    queue.verify("requeued", requeued, 1);
    queue.leases(&event).await;
    queue.leases_nothing().await;
}

/// Runs `workers` that lease and complete events until there are none. Returns the events in the order of their
/// completion.
async fn work<Q: Queue>(queue: &QueueFixture<Q>, workers: usize, batch: usize) -> Vec<Leased> {
    let all = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let done = at_once(workers, |_| {
        let (store, all) = (queue.store.clone(), all.clone());
        async move {
            loop {
                let leased = store.lease(&LeaseRequest::new(batch, LONG)).await?;
                if leased.is_empty() {
                    let counts = store.counts().await?;
                    if counts.waiting + counts.running == 0 {
                        return Ok(());
                    }
                    tokio::task::yield_now().await;
                }
                for leased in leased {
                    // Noted before the completion: after it, another worker may be quicker with the next event.
                    all.lock().await.push(leased.clone());
                    let _ = store.complete(&leased.claim(LONG), &Completion::succeeded("OK", LONG)).await?;
                }
            }
        }
    });
    for worker in done.await {
        queue.answered("work", worker);
    }
    std::mem::take(&mut *all.lock().await)
}

async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    tasks: usize,
    task: impl Fn(usize) -> F,
) -> Vec<T> {
    let tasks: Vec<_> = (0..tasks).map(|n| tokio::spawn(task(n))).collect();
    let mut answers = Vec::with_capacity(tasks.len());
    for task in tasks {
        match task.await {
            Ok(answer) => answers.push(answer),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    answers
}
