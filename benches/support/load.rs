//! Claims of new events, by many callers at once, and how long they take.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tower_webhook::EventKey;
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Store};

pub(crate) const LEASE: Duration = Duration::from_secs(600);

/// A store that remembers few events must not grow by much more than those.
const LARGEST_PART: usize = 10_000;

/// A rate, and how long single operations took.
pub(crate) struct Load {
    pub(crate) per_second: f64,
    latencies: Vec<Duration>,
}

impl Load {
    /// Runs `operations` in all, `concurrency` at a time.
    pub(crate) async fn run<O, F>(concurrency: usize, operations: usize, operation: O) -> Self
    where
        O: Fn() -> F + Clone + Send + 'static,
        F: Future<Output = ()> + Send,
    {
        let mut callers = tokio::task::JoinSet::new();
        let begun = Instant::now();
        for _ in 0..concurrency {
            let operation = operation.clone();
            callers.spawn(async move {
                let mut latencies = Vec::with_capacity(operations / concurrency);
                for _ in 0..operations / concurrency {
                    let begun = Instant::now();
                    operation().await;
                    latencies.push(begun.elapsed());
                }
                latencies
            });
        }
        let mut latencies = callers.join_all().await.concat();
        let per_second = latencies.len() as f64 / begun.elapsed().as_secs_f64();
        latencies.sort_unstable();
        Self { per_second, latencies }
    }

    /// The time that this share of the operations took at the most, in microseconds.
    pub(crate) fn percentile(&self, share: f64) -> f64 {
        let at = (self.latencies.len() as f64 * share) as usize;
        self.latencies[at.min(self.latencies.len() - 1)].as_secs_f64() * 1e6
    }
}

/// Claims an event that nobody has claimed.
pub(crate) async fn claim_new(store: &impl Store) {
    let key = new_key();
    let claim = store.claim(&ClaimRequest::new(&key, ClaimToken::random(), LEASE)).await;
    assert!(matches!(claim, Ok(Claim::Fresh { .. })), "{claim:?}");
}

/// Claims of new events on a store.
pub(crate) async fn claims<S: Store + Clone>(store: &S, concurrency: usize, operations: usize) -> Load {
    let store = store.clone();
    Load::run(concurrency, operations, move || {
        let store = store.clone();
        async move { claim_new(&store).await }
    })
    .await
}

/// The rate of claims on a store that is to stay as large as it is: in parts, each of which `forget` takes back, from the
/// number of its first key on. That is not timed.
pub(crate) async fn claims_and_forget<S: Store + Clone>(
    store: &S,
    concurrency: usize,
    operations: usize,
    forget: impl AsyncFn(u64),
) -> f64 {
    let parts = operations.div_ceil(LARGEST_PART);
    let mut time_each = 0.0;
    for _ in 0..parts {
        let first = NEXT.load(Ordering::Relaxed);
        time_each += claims(store, concurrency, operations / parts).await.per_second.recip();
        forget(first).await;
    }
    parts as f64 / time_each
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// As long as providers' ids are, and in no order, as theirs are.
pub(crate) fn new_key() -> EventKey {
    key(NEXT.fetch_add(1, Ordering::Relaxed))
}

/// The keys that were made since this was the number of the next.
pub(crate) fn keys_since(first: u64) -> impl Iterator<Item = EventKey> {
    (first..NEXT.load(Ordering::Relaxed)).map(key)
}

fn key(number: u64) -> EventKey {
    EventKey::new("/webhooks/stripe", None, &id(number))
}

pub(crate) fn id(number: u64) -> String {
    // An odd factor: numbers that follow one another are scattered, and none comes twice.
    format!("evt_1{:016x}{number:07x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
