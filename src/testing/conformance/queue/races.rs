//! Many at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::super::Harness;
use super::super::bench::{FRESH, LONG, without_attempt};
use super::bench::{ACCEPTED, Desk, Draft};
use crate::store::queue::{EventState, Filter, LeaseRequest, Leased, Order, Queue};
use crate::store::{ClaimToken, Completion, Hold, Store};

const TASKS: usize = 64;
const EVENTS: usize = 200;

/// Runs the checks of this module.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    concurrent_deliveries_are_accepted_once(harness).await;
    claims_and_acceptances_have_one_winner(harness).await;
    concurrent_workers_get_every_event_once(harness).await;
    concurrent_workers_keep_the_order(harness).await;
    concurrent_requeues_are_one(harness).await;
}

/// Sixty-four at once: one is fresh, and the event is there once.
pub async fn concurrent_deliveries_are_accepted_once(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("concurrent_deliveries_are_accepted_once", harness).await;
    let event = Draft::new("evt_1");
    let answers = at_once(TASKS, |_| {
        let (inbox, event) = (desk.inbox.clone(), event.clone());
        async move { inbox.enqueue(&event.claim(ClaimToken::random(), LONG), &event.request).await }
    });
    let answers: Vec<_> =
        answers.await.into_iter().map(|answer| without_attempt(desk.answered("accept", answer))).collect();
    desk.verify("fresh", answers.iter().filter(|answer| **answer == FRESH).count(), 1);
    desk.verify("accepted", answers.iter().filter(|answer| **answer == ACCEPTED).count(), TASKS - 1);
    desk.leases(&event).await;
    desk.leases_nothing().await;
}

/// A rolling deploy: some run it inline, some queue it. Whoever is first decides.
pub async fn claims_and_acceptances_have_one_winner(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("claims_and_acceptances_have_one_winner", harness).await;
    for round in 0..10 {
        let event = Draft::new(&format!("evt_{round}"));
        let answers = at_once(16, |n| {
            let (inbox, event) = (desk.inbox.clone(), event.clone());
            async move {
                let request = event.claim(ClaimToken::random(), LONG);
                match n % 2 {
                    0 => inbox.claim(&request).await,
                    _ => inbox.enqueue(&request, &event.request).await,
                }
            }
        });
        let answers = answers.await.into_iter().map(|answer| without_attempt(desk.answered("claim or accept", answer)));
        desk.verify("fresh", answers.filter(|answer| *answer == FRESH).count(), 1);
    }
}

/// None is left, and none is run by two.
pub async fn concurrent_workers_get_every_event_once(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("concurrent_workers_get_every_event_once", harness).await;
    for n in 0..EVENTS {
        desk.keeps(Draft::new(&n.to_string())).await;
    }
    let leased = work(&desk, 8, 7).await;
    let keys: HashSet<_> = leased.iter().map(|leased| &leased.key).collect();
    desk.verify("events", (leased.len(), keys.len()), (EVENTS, EVENTS));
    let counts = desk.answered("counts", desk.inbox.counts().await);
    desk.verify("completed", (counts.waiting, counts.running, counts.completed), (0, 0, EVENTS as u64));
}

/// Within each of ten resources.
pub async fn concurrent_workers_keep_the_order(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("concurrent_workers_keep_the_order", harness).await;
    for n in 0..100 {
        let resource = format!("resource {}", n % 10);
        desk.keeps(Draft::new(&n.to_string()).ordered(Order::of(resource))).await;
    }
    let mut runs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for leased in work(&desk, 8, 3).await {
        let n: usize = leased.key.id().parse().unwrap_or_default();
        runs.entry(n % 10).or_default().push(n);
    }
    desk.verify("resources", runs.len(), 10);
    for (resource, run) in runs {
        let expected: Vec<_> = (0..10).map(|n| n * 10 + resource).collect();
        desk.verify("order", run, expected);
    }
}

/// A double click, from sixteen hands.
pub async fn concurrent_requeues_are_one(harness: &impl Harness<Store: Queue>) {
    let desk = Desk::new("concurrent_requeues_are_one", harness).await;
    let event = desk.keeps(Draft::new("evt_1")).await;
    desk.buries(&desk.leases(&event).await, "hopeless", Hold::Held).await;
    let requeued = at_once(16, |_| {
        let (inbox, filter) = (desk.inbox.clone(), Filter::all().state(EventState::Dead));
        async move { inbox.requeue(&filter, false).await }
    });
    let requeued: u64 = requeued.await.into_iter().map(|answer| desk.answered("requeue", answer).events).sum();
    desk.verify("requeued", requeued, 1);
    desk.leases(&event).await;
    desk.leases_nothing().await;
}

/// Has `workers` lease and complete events until there are none, and says which, in the order in which they were completed.
async fn work<Q: Queue>(desk: &Desk<Q>, workers: usize, batch: usize) -> Vec<Leased> {
    let all = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let done = at_once(workers, |_| {
        let (inbox, all) = (desk.inbox.clone(), all.clone());
        async move {
            loop {
                let leased = inbox.lease(&LeaseRequest::new(batch, LONG)).await?;
                if leased.is_empty() {
                    let counts = inbox.counts().await?;
                    if counts.waiting + counts.running == 0 {
                        return Ok(());
                    }
                    tokio::task::yield_now().await;
                }
                for leased in leased {
                    // Noted down before: afterwards somebody else may be quicker with the next one.
                    all.lock().await.push(leased.clone());
                    let _ = inbox.complete(&leased.claim(LONG), &Completion::succeeded("OK", LONG)).await?;
                }
            }
        }
    });
    for worker in done.await {
        desk.answered("work", worker);
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
