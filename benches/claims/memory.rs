//! The memory store: what a claim costs among many remembered events.

use std::time::Duration;

use tower_webhook::EventKey;
use tower_webhook::store::{ClaimRequest, ClaimToken, Completion, MemoryStore, Store};

use crate::Effort;
use crate::support::load::{self, LEASE, id};
use crate::support::report::{Report, median};

const WEEK: Duration = Duration::from_secs(7 * 24 * 3600);

pub(crate) async fn measure(report: &mut Report, effort: Effort) {
    let many = (10_000_000.0 * effort.remembered) as u64;
    let (few, crowded) = (filled(10_000).await, filled(many).await);
    let operations = 50_000;
    let mut costs = Vec::new();
    for round in 0..effort.rounds {
        // Whichever is first in a round warms the caches for nobody.
        let (few, crowded) = match round % 2 {
            0 => (cost(&few, operations).await, cost(&crowded, operations).await),
            _ => {
                let crowded = cost(&crowded, operations).await;
                (cost(&few, operations).await, crowded)
            }
        };
        costs.push((few, crowded));
    }
    println!("\nmemory, one claim and its release");
    println!("  {:<34}{:>10.0} ns", "10,000 remembered", median(costs.iter().map(|cost| cost.0)));
    println!("  {:<34}{:>10.0} ns", format!("{many} remembered"), median(costs.iter().map(|cost| cost.1)));
    report.number("memory_10m_vs_10k", median(costs.iter().map(|cost| cost.1 / cost.0)));
}

async fn filled(events: u64) -> MemoryStore {
    let store = MemoryStore::builder().capacity(events as usize + 1_000_000).build();
    for number in 0..events {
        let key = EventKey::new("/webhooks/stripe", None, &id(u64::MAX - number));
        let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE);
        store.claim(&claim).await.expect("room");
        let _ = store.complete(&claim, &Completion::succeeded("OK", WEEK)).await.expect("an answer");
    }
    store
}

/// Nanoseconds. What is claimed is released again, so that the store stays as large as it is.
async fn cost(store: &MemoryStore, operations: usize) -> f64 {
    let keys: Vec<_> = (0..operations).map(|_| load::new_key()).collect();
    let begun = std::time::Instant::now();
    for key in &keys {
        let claim = ClaimRequest::new(key, ClaimToken::random(), LEASE);
        store.claim(&claim).await.expect("room");
        let _ = store.release(key, claim.token).await.expect("an answer");
    }
    begun.elapsed().as_nanos() as f64 / operations as f64
}
