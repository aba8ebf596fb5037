//! What leasing a batch costs on Postgres, with a thousand events waiting and with a million.

use std::time::{Duration, Instant};

use tower_webhook::inbox::{Inbox, LeaseRequest};
use tower_webhook::store::{Completion, PostgresStore};

use crate::Effort;
use crate::events::accepts;
use crate::report::{Report, median};
use crate::site::Sites;

const BATCH: usize = 10;

pub(crate) async fn measure(report: &mut Report, effort: Effort, sites: &Sites) {
    let many = (1_000_000.0 * effort.operations) as usize;
    let (few, crowded) = (sites.table("few_waiting").await, sites.table("many_waiting").await);
    accepts(&few, 64, 1_000).await;
    accepts(&crowded, 64, many).await;
    for table in ["few_waiting", "many_waiting"] {
        sites.sql(&format!("VACUUM ANALYZE {table}")).await;
    }
    let mut rounds = Vec::new();
    for _ in 0..effort.rounds * 4 {
        let few = lease_one_batch(&few).await;
        let crowded = lease_one_batch(&crowded).await;
        rounds.push((few, crowded));
    }
    println!("\npostgres, leasing {BATCH} events");
    println!("  {:<34}{:>10.0} µs", "1,000 waiting", median(rounds.iter().map(|round| round.0)));
    println!("  {:<34}{:>10.0} µs", format!("{many} waiting"), median(rounds.iter().map(|round| round.1)));
    report.number("dequeue_1m_vs_1k", median(rounds.iter().map(|round| round.1 / round.0)));
}

/// The median of several leases, in microseconds. What was leased is completed, outside of the timing, and as many accepted.
async fn lease_one_batch(inbox: &PostgresStore) -> f64 {
    let mut times = Vec::new();
    for _ in 0..15 {
        let begun = Instant::now();
        let leased = inbox.lease(&LeaseRequest::new(BATCH, Duration::from_secs(600))).await.expect("events");
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        assert_eq!(leased.len(), BATCH);
        for event in &leased {
            let done = Completion::succeeded("OK", Duration::from_secs(600));
            let _ = tower_webhook::store::Store::complete(inbox, &event.claim(Duration::from_secs(600)), &done).await;
        }
        accepts(inbox, BATCH, BATCH).await;
    }
    median(times.into_iter())
}
