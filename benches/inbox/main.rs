//! What the inbox costs: acknowledging, draining, picking up; every figure a ratio from one run, or a latency:
//! `cargo bench --bench inbox --features postgres,redis,sqlite`.
//!
//! It starts servers of its own, and needs `redis-server` and `postgres`. Variants take turns within a round; a ratio is the
//! median over the rounds of the ratio within the round. `--quick` takes fewer rounds and events, to try the bench itself; `ack`,
//! `accept`, `drain`, `pickup`, `dequeue`, `kinds`, `snapshot` or `slowlog` measures these alone. `target/bench/inbox.json` gets the
//! figures.

mod accept;
mod ack;
mod dequeue;
mod drain;
mod events;
mod pickup;
#[path = "../../tests/support/servers/mod.rs"]
mod servers;
mod slowlog;
mod stores;
#[path = "../support/mod.rs"]
mod support;

use stores::Stores;
use support::report::Report;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// How many operations a round has, as a share of the usual.
    operations: f64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let effort = match std::env::args().any(|argument| argument == "--quick") {
        true => Effort { rounds: 1, operations: 0.05 },
        false => Effort { rounds: 5, operations: 1.0 },
    };
    let (mut report, stores) = (Report::default(), Stores::start().await);
    if is_wanted("ack") {
        ack::measure(&mut report, effort, &stores).await;
    }
    if is_wanted("accept") {
        accept::measure(&mut report, effort, &stores).await;
    }
    if is_wanted("drain") {
        drain::measure(&mut report, effort, &stores).await;
    }
    if is_wanted("pickup") {
        pickup::measure(&mut report, effort, &stores).await;
    }
    if is_wanted("dequeue") {
        dequeue::measure(&mut report, effort, &stores).await;
    }
    if is_wanted("kinds") {
        dequeue::measure_other_kinds(&mut report, effort, &stores).await;
    }
    if is_wanted("snapshot") {
        dequeue::measure_old_snapshot(&mut report, effort, &stores).await;
    }
    if is_wanted("slowlog") {
        slowlog::measure(&mut report, effort).await;
    }
    report.print_and_write("inbox");
}

/// Whether a part is named among the arguments, or none is.
fn is_wanted(part: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|name| name == part)
}
