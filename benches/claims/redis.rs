//! Redis, against `redis-benchmark` and against a connection checked out of the pool for every claim.

use std::process::Command;

use deadpool_redis::redis::{cmd, pipe};
use deadpool_redis::{Config, Pool, Runtime};
use tower_webhook::store::{ClaimToken, RedisStore};

use crate::servers::redis::RedisServer;
use crate::support::load::{self, LEASE, Load, id};
use crate::support::report::{Report, median};
use crate::{Effort, sockets};

pub(crate) async fn measure(report: &mut Report, effort: Effort) {
    let server = RedisServer::start();
    let pool = pool(&server, 64);
    let store = RedisStore::new(pool.clone());
    crowded(report, effort, &server, &pool, &store).await;
    alone(report, effort, &server, &store).await;
    remembering(report, effort).await;
    sockets::measure("redis", effort, &store).await;
}

/// 64 at a time.
async fn crowded(report: &mut Report, effort: Effort, server: &RedisServer, pool: &Pool, store: &RedisStore) {
    let operations = (200_000.0 * effort.operations) as usize;
    let mut rates = Vec::new();
    for _ in 0..effort.rounds {
        server.command(&["FLUSHALL"]);
        let ours = load::claims(store, 64, operations).await.per_second;
        server.command(&["FLUSHALL"]);
        let theirs = benchmark(server, 64, operations).0;
        server.command(&["FLUSHALL"]);
        let checkout = checkouts(pool, 64, operations).await;
        rates.push((ours, theirs, checkout));
    }
    println!("\nredis, claims per second, 64 at a time");
    println!("  {:<34}{:>10.0}", "RedisStore", median(rates.iter().map(|rate| rate.0)));
    println!("  {:<34}{:>10.0}", "redis-benchmark -c 64 -P 1", median(rates.iter().map(|rate| rate.1)));
    println!("  {:<34}{:>10.0}", "a checkout of deadpool per claim", median(rates.iter().map(|rate| rate.2)));
    report.number("redis_64_vs_benchmark", median(rates.iter().map(|rate| rate.0 / rate.1)));
    report.number("redis_64_vs_checkout", median(rates.iter().map(|rate| rate.0 / rate.2)));
}

/// One at a time.
async fn alone(report: &mut Report, effort: Effort, server: &RedisServer, store: &RedisStore) {
    let operations = (20_000.0 * effort.operations) as usize;
    let mut medians = Vec::new();
    for _ in 0..effort.rounds {
        server.command(&["FLUSHALL"]);
        let ours = load::claims(store, 1, operations).await.percentile(0.5);
        server.command(&["FLUSHALL"]);
        let theirs = benchmark(server, 1, operations).1;
        medians.push((ours, theirs));
    }
    println!("\nredis, p50 of a claim, one at a time");
    println!("  {:<34}{:>10.0} µs", "RedisStore", median(medians.iter().map(|time| time.0)));
    println!("  {:<34}{:>10.0} µs", "redis-benchmark -c 1 -P 1", median(medians.iter().map(|time| time.1)));
    report.number("redis_1_p50_vs_benchmark", median(medians.iter().map(|time| time.0 / time.1)));
}

/// Two servers, one with few events and one with many.
async fn remembering(report: &mut Report, effort: Effort) {
    let many = (10_000_000.0 * effort.remembered) as u64;
    let (few, crowded) = (filled(10_000).await, filled(many).await);
    let operations = (100_000.0 * effort.operations) as usize;
    let mut rates = Vec::new();
    for _ in 0..effort.rounds {
        rates.push((few.rate(operations).await, crowded.rate(operations).await));
    }
    println!("\nredis, claims per second, 64 at a time");
    println!("  {:<34}{:>10.0}", "10,000 remembered", median(rates.iter().map(|rate| rate.0)));
    println!("  {:<34}{:>10.0}", format!("{many} remembered"), median(rates.iter().map(|rate| rate.1)));
    report.number("redis_10m_vs_10k", median(rates.iter().map(|rate| rate.0 / rate.1)));
}

/// A server that remembers so many events, and no more after they were measured.
struct Filled {
    _server: RedisServer,
    pool: Pool,
    store: RedisStore,
}

impl Filled {
    async fn rate(&self, operations: usize) -> f64 {
        load::claims_and_forget(&self.store, 64, operations, async |first| self.forget(first).await).await
    }

    async fn forget(&self, first: u64) {
        let keys: Vec<_> = load::keys_since(first).map(|key| format!("tower-webhook:{key}")).collect();
        let mut connection = self.pool.get().await.expect("a connection");
        let deleted: usize = cmd("DEL").arg(&keys).query_async(&mut connection).await.expect("an answer");
        assert_eq!(deleted, keys.len(), "what was claimed is what is forgotten");
    }
}

/// A server that remembers this many completed events, as the store would have written them.
async fn filled(events: u64) -> Filled {
    let server = RedisServer::start();
    let pool = pool(&server, 4);
    let mut connection = pool.get().await.expect("a connection");
    let value = format!("c:{:022}:{:011}:OK", 0, 0);
    for chunk in 0..events.div_ceil(10_000) {
        let mut pipeline = pipe();
        for number in chunk * 10_000..((chunk + 1) * 10_000).min(events) {
            let key = format!("tower-webhook:16.0:/webhooks/stripe//{}", id(u64::MAX - number));
            pipeline.cmd("SET").arg(key).arg(&value).arg("PX").arg(604_800_000).ignore();
        }
        pipeline.exec_async(&mut connection).await.expect("room");
    }
    drop(connection);
    Filled { _server: server, store: RedisStore::new(pool.clone()), pool }
}

/// The same command by the engine's own tool: its rate, and its median in microseconds.
fn benchmark(server: &RedisServer, clients: usize, operations: usize) -> (f64, f64) {
    let port = server.address().port().to_string();
    let value = format!("r:{:022}:{:011}:", 0, 0);
    let milliseconds = LEASE.as_millis().to_string();
    let output = Command::new("redis-benchmark")
        .args(["-p", &port, "-c", &clients.to_string(), "-n", &operations.to_string(), "-P", "1"])
        .args(["-r", "1000000000", "--csv"])
        .args(["SET", "tower-webhook:16.0:/webhooks/stripe//evt_1NG8Du2eZvKY__rand_int__", &value])
        .args(["NX", "GET", "PX", &milliseconds])
        .output()
        .expect("redis-benchmark: apt-get install redis-tools");
    let text = String::from_utf8(output.stdout).expect("text");
    // "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms",…: the test's name has commas of its own.
    let last = text.lines().last().expect("a line");
    let numbers: Vec<f64> =
        last.rsplit("\",\"").map(|field| field.trim_matches('"')).map_while(|n| n.parse().ok()).collect();
    let [.., p50, _, _, rate] = numbers[..] else { panic!("not what redis-benchmark prints: {text}") };
    (rate, p50 * 1000.0)
}

/// What one writes first: a connection from the pool for every claim.
async fn checkouts(pool: &Pool, concurrency: usize, operations: usize) -> f64 {
    let pool = pool.clone();
    let claim = move || {
        let pool = pool.clone();
        async move {
            let mut connection = pool.get().await.expect("a connection");
            let key = format!("tower-webhook:{}", load::new_key());
            let value = format!("r:{}:{:011}:", ClaimToken::random(), 0);
            let mut set = cmd("SET");
            set.arg(key).arg(value).arg("NX").arg("GET").arg("PX").arg(LEASE.as_millis() as u64);
            let found: Option<String> = set.query_async(&mut connection).await.expect("an answer");
            assert!(found.is_none());
        }
    };
    Load::run(concurrency, operations, claim).await.per_second
}

fn pool(server: &RedisServer, size: usize) -> Pool {
    let config = Config::from_url(server.url());
    config.builder().expect("a URL").max_size(size).runtime(Runtime::Tokio1).build().expect("a pool")
}
