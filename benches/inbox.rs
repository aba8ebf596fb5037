//! What the inbox costs: acknowledging, draining, picking up; every figure a ratio from one run, or a latency:
//! `cargo bench --bench inbox --features postgres,redis,sqlite`.
//!
//! It starts servers of its own, and needs `redis-server` and `postgres`. Variants take turns within a round; a ratio is the
//! median over the rounds of the ratio within the round. `--quick` takes fewer rounds and events, to try the bench itself; `ack`,
//! `accept`, `drain`, `pickup`, `dequeue`, `kinds`, `snapshot` or `slowlog` measures these alone. `target/bench/inbox.json` gets the
//! figures.

#[path = "inbox/accept.rs"]
mod accept;
#[path = "inbox/ack.rs"]
mod ack;
#[path = "inbox/dequeue.rs"]
mod dequeue;
#[path = "inbox/drain.rs"]
mod drain;
#[path = "inbox/events.rs"]
mod events;
#[path = "claims/load.rs"]
#[allow(dead_code, reason = "shared with the bench of claims, which uses more of it")]
mod load;
#[path = "inbox/pickup.rs"]
mod pickup;
#[path = "../tests/support/port.rs"]
#[allow(unreachable_pub, reason = "shared with the tests")]
mod port;
#[path = "../tests/support/postgres_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests, which use more of it")]
mod postgres_server;
#[path = "../tests/support/redis_scripts.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests, which use more of it")]
mod redis_scripts;
#[path = "../tests/support/redis_server.rs"]
#[allow(dead_code, unreachable_pub, reason = "shared with the tests, which use more of it")]
mod redis_server;
#[path = "support/report.rs"]
mod report;
#[path = "inbox/site.rs"]
mod site;
#[path = "inbox/slowlog.rs"]
mod slowlog;

use report::Report;
use site::Sites;

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
    let (mut report, sites) = (Report::default(), Sites::start().await);
    if is_wanted("ack") {
        ack::measure(&mut report, effort, &sites).await;
    }
    if is_wanted("accept") {
        accept::measure(&mut report, effort, &sites).await;
    }
    if is_wanted("drain") {
        drain::measure(&mut report, effort, &sites).await;
    }
    if is_wanted("pickup") {
        pickup::measure(&mut report, effort, &sites).await;
    }
    if is_wanted("dequeue") {
        dequeue::measure(&mut report, effort, &sites).await;
    }
    if is_wanted("kinds") {
        dequeue::measure_other_kinds(&mut report, effort, &sites).await;
    }
    if is_wanted("snapshot") {
        dequeue::measure_old_snapshot(&mut report, effort, &sites).await;
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
