//! Many callers at once, of a store and of a queue.

use std::collections::{BTreeMap, HashSet};
use std::future::Future;
use std::sync::Arc;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::fixture::{Caller, FRESH, Fixture, IN_FLIGHT, LONG, without_attempt};
use super::queue_fixture::{ACCEPTED, NewEvent, QueueFixture};
use super::suite::{Case, Harness, cases};
use crate::EventKey;
use crate::store::queue::{EventState, Filter, LeaseRequest, Leased, Order, Queue};
use crate::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, Store};

const CALLERS: usize = 64;
const ROUNDS: usize = 24;
const EVENTS: usize = 200;

pub(super) fn store_cases<H: Harness>() -> Vec<Case<H>> {
    cases![
        concurrent_claims_have_one_winner,
        concurrent_takeovers_have_one_winner,
        completion_and_takeover_have_one_winner,
    ]
}

pub(super) fn queue_cases<H: Harness<Store: Queue>>() -> Vec<Case<H>> {
    cases![
        concurrent_deliveries_are_enqueued_once,
        claims_and_enqueues_have_one_winner,
        concurrent_workers_get_every_event_once,
        concurrent_workers_keep_the_order,
        concurrent_requeues_are_one,
    ]
}

/// Of 64 concurrent claims for one key exactly one is fresh; the others see it in flight.
async fn concurrent_claims_have_one_winner(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    one_winner_per_event(&events(&fixture)).await;
}

/// Of 64 concurrent claims for one lapsed claim exactly one takes it over.
async fn concurrent_takeovers_have_one_winner(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let events = events(&fixture);
    for event in &events {
        event.claims_for(harness.lease(), Caller::First, FRESH).await;
    }
    harness.pass(harness.lease() * 2).await;
    one_winner_per_event(&events).await;
}

/// A lapsed holder completes while another takes over: either the work counts or the takeover does, never both.
async fn completion_and_takeover_have_one_winner(harness: &impl Harness) {
    let fixture = Fixture::new(harness).await;
    let events = events(&fixture);
    for event in &events {
        event.claims_for(harness.lease(), Caller::First, FRESH).await;
    }
    harness.pass(harness.lease() * 2).await;
    for event in &events {
        let (completed, claimed) = complete_against_claim(event).await;
        let expected = if completed == Hold::Held { Claim::Completed { same_body: true } } else { FRESH };
        if claimed != expected {
            event.fail(&format!("claim against a completion that was {completed:?}"), &expected, &claimed);
        }
    }
}

async fn one_winner_per_event<S: Store>(events: &[Fixture<S>]) {
    for event in events {
        let claims = together((0..CALLERS).map(|_| {
            let (store, key) = (Arc::clone(&event.store), event.key.clone());
            async move { store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LONG)).await }
        }));
        let mut winners = 0;
        for claim in claims.await {
            match without_attempt(event.answered("claim", claim)) {
                FRESH => winners += 1,
                IN_FLIGHT => {}
                other => event.fail("concurrent claim", &"Fresh or InFlight with the same body", &other),
            }
        }
        if winners != 1 {
            event.fail(&format!("{CALLERS} concurrent claims"), &"one Fresh", &winners);
        }
    }
}

async fn complete_against_claim<S: Store>(event: &Fixture<S>) -> (Hold, Claim) {
    let start = Arc::new(Barrier::new(2));
    let completing = {
        let (store, key, start) = (Arc::clone(&event.store), event.key.clone(), Arc::clone(&start));
        tokio::spawn(async move {
            start.wait().await;
            let claim = ClaimRequest::new(&key, Caller::First.token(), LONG);
            store.complete(&claim, &Completion::succeeded("200", LONG)).await
        })
    };
    let request = ClaimRequest::new(&event.key, Caller::Second.token(), LONG);
    start.wait().await;
    let claimed = event.answered("claim", event.store.claim(&request).await);
    let completed = completing.await.unwrap_or_else(|panicked| event.fail("complete", &"an answer", &panicked));
    (event.answered("complete", completed), without_attempt(claimed))
}

/// Runs all `calls` as tasks that wait for one another before they start.
async fn together<F>(calls: impl Iterator<Item = F>) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let start = Arc::new(Barrier::new(CALLERS));
    let mut tasks = JoinSet::new();
    for call in calls {
        let start = Arc::clone(&start);
        tasks.spawn(async move {
            start.wait().await;
            call.await
        });
    }
    tasks.join_all().await
}

fn events<S: Store>(fixture: &Fixture<S>) -> Vec<Fixture<S>> {
    (0..ROUNDS).map(|n| fixture.event(EventKey::new("/race", None, &n.to_string()))).collect()
}

/// Of 64 concurrent enqueues of one event exactly one is fresh, and the event is queued once.
async fn concurrent_deliveries_are_enqueued_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
    let event = NewEvent::new("evt_1");
    let answers = at_once(CALLERS, |_| {
        let (store, event) = (queue.store.clone(), event.clone());
        async move { store.enqueue(&event.claim(ClaimToken::random(), LONG), &event.request).await }
    });
    let answers: Vec<_> =
        answers.await.into_iter().map(|answer| without_attempt(queue.answered("accept", answer))).collect();
    queue.verify("fresh", answers.iter().filter(|answer| **answer == FRESH).count(), 1);
    queue.verify("accepted", answers.iter().filter(|answer| **answer == ACCEPTED).count(), CALLERS - 1);
    queue.leases(&event).await;
    queue.leases_nothing().await;
}

/// During a rolling deploy, some instances claim an event and some enqueue it: the first call wins.
async fn claims_and_enqueues_have_one_winner(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn concurrent_workers_get_every_event_once(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn concurrent_workers_keep_the_order(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
async fn concurrent_requeues_are_one(harness: &impl Harness<Store: Queue>) {
    let queue = QueueFixture::new(harness).await;
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
