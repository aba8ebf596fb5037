//! Accepted events per second, against claims of the same store.

use tower_webhook::queue::Queue;

use crate::Effort;
use crate::events::accepts;
use crate::stores::Stores;
use crate::support::load;
use crate::support::report::{Report, median};

pub(crate) async fn measure(report: &mut Report, effort: Effort, stores: &Stores) {
    one(report, effort, stores, &stores.postgres, "postgres", 40_000.0).await;
    one(report, effort, stores, &stores.redis, "redis", 150_000.0).await;
}

async fn one<I: Queue + Clone>(
    report: &mut Report,
    effort: Effort,
    stores: &Stores,
    inbox: &I,
    name: &str,
    operations: f64,
) {
    let operations = (operations * effort.operations) as usize;
    let mut rates = Vec::new();
    for _ in 0..effort.rounds {
        stores.empty().await;
        let claimed = load::claims(inbox, 64, operations).await.per_second;
        stores.empty().await;
        let accepted = accepts(inbox, 64, operations).await.per_second;
        rates.push((accepted, claimed));
    }
    println!("\n{name}, per second, 64 at a time");
    println!("  {:<34}{:>10.0}", "accepted, with 1 KiB", median(rates.iter().map(|rate| rate.0)));
    println!("  {:<34}{:>10.0}", "claimed", median(rates.iter().map(|rate| rate.1)));
    report.number(&format!("accept_vs_claim_{name}"), median(rates.iter().map(|rate| rate.0 / rate.1)));
}
