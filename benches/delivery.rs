//! What one delivery costs in process, as ratios from one run: `cargo bench --bench delivery`.
//!
//! Every round measures every variant on requests made beforehand, in an order that rotates; a ratio is the median over
//! the rounds of (variant / base) within the round, and the whole is repeated three times, of which the median counts. The
//! handlers do not yield. `target/bench/delivery.json` gets the ratios of the current-thread runtime.

mod support;

use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use http::Request;
use tower::Service;
use tower_webhook::EventKey;
use tower_webhook::store::{ClaimRequest, ClaimToken, Completion, Hold, MemoryStore, Store};

use support::report::{Report, median};
use support::variants::{self, Variant};

const RUNS: usize = 3;
const SIZES: [(&str, usize); 4] = [("1k", 1 << 10), ("10k", 10 << 10), ("100k", 100 << 10), ("1m", 1 << 20)];

fn main() {
    let mut report = Report::default();
    // First, while the heap has no holes that the store could hide in.
    report.number("bytes_per_id", bytes_per_id());
    for (name, size) in SIZES {
        // About the same time for every size.
        let requests = (600_000 / (size + 1_000)).clamp(8, 300);
        let rounds = 60;
        measure(&mut report, name, size, requests, rounds);
    }
    refusals(&mut report);
    report.print_and_write("delivery");
}

/// All variants at one body size, on both runtimes.
fn measure(report: &mut Report, name: &str, size: usize, requests: usize, rounds: usize) {
    let variants = variants::deliveries(size);
    let single = compare(&current_thread(), &variants, requests, rounds);
    let multi = compare(&multi_thread(), &variants, requests, rounds / 2);
    print_table(&format!("{name} body"), &variants, &single, &multi);
    let ratio = |variant: &str, base: &str| single.ratio(&variants, variant, base);
    report.number(&format!("fresh_vs_ideal_{name}"), ratio("fresh", "ideal"));
    report.number(&format!("duplicate_vs_ideal_{name}"), ratio("duplicate", "ideal"));
    report.number(&format!("fresh_vs_handwritten_{name}"), ratio("fresh", "handwritten"));
}

/// Requests that the head alone gives reason to refuse, against a handler that answers 401 unread.
fn refusals(report: &mut Report) {
    let variants = variants::refusals();
    let single = compare(&current_thread(), &variants, 300, 100);
    let multi = compare(&multi_thread(), &variants, 300, 50);
    print_table("refused from the head", &variants, &single, &multi);
    let ratios =
        ["missing header", "malformed header", "stale header"].map(|name| single.ratio(&variants, name, "bare 401"));
    report.number("refused_vs_401", ratios.into_iter().fold(0.0, f64::max));
}

/// Nanoseconds of every variant, on both runtimes.
fn print_table(title: &str, variants: &[Variant], single: &Measured, multi: &Measured) {
    println!("\n{title:<24}{:>14}{:>14}", "current ns", "multi ns");
    for (index, variant) in variants.iter().enumerate() {
        println!("  {:<22}{:>14.0}{:>14.0}", variant.name, single.nanoseconds(index), multi.nanoseconds(index));
    }
}

/// Nanoseconds per request: for each run, for each round, for each variant.
struct Measured(Vec<Vec<Vec<f64>>>);

impl Measured {
    /// The median run of the median round's ratio.
    fn ratio(&self, variants: &[Variant], variant: &str, base: &str) -> f64 {
        let position = |name: &str| variants.iter().position(|variant| variant.name == name).expect("a variant's name");
        let (variant, base) = (position(variant), position(base));
        median(self.0.iter().map(|rounds| median(rounds.iter().map(|round| round[variant] / round[base]))))
    }

    fn nanoseconds(&self, variant: usize) -> f64 {
        median(self.0.iter().map(|rounds| median(rounds.iter().map(|round| round[variant]))))
    }
}

fn compare(runtime: &tokio::runtime::Runtime, variants: &[Variant], requests: usize, rounds: usize) -> Measured {
    let run = || {
        let round = |turn: usize| {
            let mut times = vec![0.0; variants.len()];
            for step in 0..variants.len() {
                let at = (step + turn) % variants.len();
                times[at] = time(runtime, &variants[at], requests);
            }
            times
        };
        round(0); // warms caches and allocator up
        (0..rounds).map(round).collect()
    };
    Measured((0..RUNS).map(|_| run()).collect())
}

fn time(runtime: &tokio::runtime::Runtime, variant: &Variant, requests: usize) -> f64 {
    let prepared = (variant.prepare)(requests);
    let app = variant.app.clone();
    // Spawned, so that a multi-thread runtime runs it on a worker.
    let elapsed = runtime.block_on(async { tokio::spawn(send_all(app, prepared)).await }).expect("no panic");
    elapsed / requests as f64
}

async fn send_all(mut app: Router, requests: Vec<Request<Body>>) -> f64 {
    let started = Instant::now();
    for request in requests {
        let response = app.call(request).await.expect("a router cannot fail");
        std::hint::black_box(response.status());
    }
    started.elapsed().as_nanos() as f64
}

fn current_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn multi_thread() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// How many bytes a million remembered ids take, everything included: the growth of this process.
fn bytes_per_id() -> f64 {
    const IDS: usize = 1_000_000;
    let runtime = current_thread();
    let before = resident_bytes();
    let store = MemoryStore::builder().capacity(IDS).build();
    runtime.block_on(async {
        for number in 0..IDS {
            let key = EventKey::new("/webhooks", None, &format!("evt_{number:016}"));
            let request = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
            store.claim(&request).await.expect("room");
            let done = Completion::succeeded("OK", Duration::from_secs(7 * 24 * 3600));
            assert_eq!(store.complete(&request, &done).await.expect("an answer"), Hold::Held);
        }
    });
    assert_eq!(store.len(), IDS);
    (resident_bytes() - before) as f64 / IDS as f64
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("a number of pages");
    pages * 4096
}
