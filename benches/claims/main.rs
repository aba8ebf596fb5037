//! What a claim costs on every store, against the engine's own tool on the same server, in one run:
//! `cargo bench --bench claims --features postgres,redis,sqlite`.
//!
//! It starts servers of its own, and needs `redis-server`, `redis-benchmark`, `postgres` and `pgbench`. Variants take turns
//! within a round and the table is emptied before each; a ratio is the median over the rounds of the ratio within the round.
//! `--quick` takes fewer rounds and fewer remembered ids, to try the bench itself; `redis`, `postgres`, `sqlite` or `memory` measures
//! these alone. `target/bench/claims.json` gets the ratios.

mod memory;
mod postgres;
mod redis;
#[path = "../../tests/support/servers/mod.rs"]
mod servers;
mod sockets;
mod sqlite;
#[path = "../support/mod.rs"]
mod support;

use support::report::Report;

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    /// How many operations a round has, as a share of the usual.
    operations: f64,
    /// What "many remembered ids" is, as a share of the usual.
    remembered: f64,
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let effort = match std::env::args().any(|argument| argument == "--quick") {
        true => Effort { rounds: 1, operations: 0.1, remembered: 0.01 },
        false => Effort { rounds: 7, operations: 1.0, remembered: 1.0 },
    };
    let mut report = Report::default();
    if is_wanted("redis") {
        redis::measure(&mut report, effort).await;
    }
    if is_wanted("postgres") {
        postgres::measure(&mut report, effort).await;
    }
    if is_wanted("sqlite") {
        sqlite::measure(&mut report, effort).await;
    }
    if is_wanted("memory") {
        memory::measure(&mut report, effort).await;
    }
    report.print_and_write("claims");
}

/// Whether a store is named among the arguments, or none is.
fn is_wanted(store: &str) -> bool {
    let mut named = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).peekable();
    named.peek().is_none() || named.any(|name| name == store)
}
