//! How long the scripts of the Redis inbox hold the server, as its `SLOWLOG` tells: with few and with many kinds, with the largest bodies,
//! and with a million events.
//!
//! The log has every command, since `slowlog-log-slower-than` is 0. It also has those that a script calls, and to log them is a part of
//! the script's time. The median says what a script costs; on a busy machine the most says how long the server had to wait for its turn.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use deadpool_redis::{Config, Runtime};
use tokio::task::JoinSet;
use tower_webhook::EventKey;
use tower_webhook::queue::{Filter, LeaseRequest, Leased, Page, Queue, StoredRequest};
use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, RedisStore, Store};

use crate::Effort;
use crate::servers::redis::RedisServer;
use crate::servers::redis_scripts::Names;
use crate::support::load::LEASE;
use crate::support::report::{Report, median};

const MIB: usize = 1 << 20;

/// The stream of all events, and what of them is completed and not purged.
const EVENTS: &str = "tower-webhook:inbox:events";
const COMPLETED: &str = "tower-webhook:inbox:completed";

/// A server of its own, and what its log said of each script, in microseconds.
struct Scene {
    server: RedisServer,
    store: RedisStore,
    names: Names,
    accepted: usize,
    times: BTreeMap<&'static str, Vec<f64>>,
}

pub(crate) async fn measure(report: &mut Report, effort: Effort) {
    println!("\nredis, µs that scripts hold the server, by SLOWLOG: median and most of so many runs");
    let rounds = effort.rounds * 20;
    for kinds in [1, 50, 300, 1000] {
        let mut scene = Scene::start();
        scene.fill(3 * kinds.max(64), kinds, &[b'x'; 1024]).await;
        scene.run(rounds, kinds, &[b'x'; 1024]).await;
        scene.report(report, &format!("{kinds} kinds"), &format!("kinds_{kinds}"));
    }
    let mut scene = Scene::start();
    let body = vec![b'x'; 25 * MIB];
    scene.fill(64, 1, &body[..MIB]).await;
    scene.run(effort.rounds, 1, &body).await;
    scene.report(report, "bodies of 1 and 25 MiB", "large_bodies");
    let (mut scene, many) = (Scene::start(), (1_000_000.0 * effort.operations) as usize);
    scene.fill(many, 7, b"{}").await;
    scene.run(rounds, 7, b"{}").await;
    scene.report(report, &format!("{many} events"), "million_events");
}

impl Scene {
    fn start() -> Self {
        let server = RedisServer::start();
        let pool = Config::from_url(server.url()).create_pool(Some(Runtime::Tokio1)).expect("a pool");
        let store = RedisStore::builder(pool).timeout(Duration::from_secs(60)).build();
        let names = Names::load(&server);
        server.command(&["CONFIG", "SET", "slowlog-max-len", "10000000"]);
        server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
        Self { server, store, names, accepted: 0, times: BTreeMap::new() }
    }

    /// Accepts so many events, which nobody measures.
    async fn fill(&mut self, events: usize, kinds: usize, body: &[u8]) {
        let mut accepting = JoinSet::new();
        for n in 0..events {
            if accepting.len() >= 256 {
                accepting.join_next().await.expect("a task").expect("an accepted event");
            }
            accepting.spawn(accept(self.store.clone(), n, n % kinds, body.to_vec()));
        }
        accepting.join_all().await;
        assert_eq!(self.server.command(&["XLEN", EVENTS]), format!("{events}\n"));
        self.accepted = events;
    }

    /// Runs every script in turn: the verbs of receivers and workers, of operators, and at last the purge.
    async fn run(&mut self, rounds: usize, kinds: usize, body: &[u8]) {
        self.server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
        for _ in 0..rounds {
            accept(self.store.clone(), self.accepted, self.accepted % kinds, body.to_vec()).await;
            self.accepted += 1;
            self.store.list(&Filter::all(), &Page::first(100)).await.map(drop).expect("an answer");
            self.store.counts().await.map(drop).expect("an answer");
            for event in self.lease(64).await {
                let _ = self.store.release(&event.key, event.token).await;
            }
            self.read_log();
        }
        let mut leased = Vec::new();
        while leased.len() < 640.min(self.accepted) {
            leased.extend(self.lease(64).await);
        }
        let completion = Completion::succeeded("OK", Duration::from_millis(1));
        for event in leased {
            let _ = self.store.complete(&event.claim(LEASE), &completion).await;
        }
        // A lease purges some, and has a task go on with the others.
        while self.server.command(&["EXISTS", COMPLETED]) == "1\n" {
            self.lease(1).await;
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.read_log();
    }

    async fn lease(&self, limit: usize) -> Vec<Leased> {
        self.store.lease(&LeaseRequest::new(limit, LEASE)).await.expect("events")
    }

    /// An entry has the time in front of the command.
    fn read_log(&mut self) {
        let log = self.server.command(&["SLOWLOG", "GET", "-1"]);
        self.server.command(&["SLOWLOG", "RESET"]);
        let lines: Vec<_> = log.lines().collect();
        for entry in lines.windows(3).filter(|entry| entry[1] == "EVALSHA") {
            let name = self.names.of(entry[2]);
            self.times.entry(name).or_default().push(entry[0].parse().expect("microseconds"));
        }
    }

    fn report(self, report: &mut Report, title: &str, name: &str) {
        println!("  {title}");
        for (script, times) in self.times {
            let (runs, most) = (times.len(), times.iter().copied().fold(0.0, f64::max));
            let median = median(times.into_iter());
            println!("    {script:<14}{median:>10.0}{most:>10.0}{runs:>8}");
            if script == "lease" {
                report.number(&format!("slowlog_lease_{name}_us"), median);
            }
        }
    }
}

async fn accept(store: RedisStore, number: usize, kind: usize, body: Vec<u8>) {
    let (key, event_type) = (EventKey::new("/hooks", None, &number.to_string()), format!("type {kind}"));
    let claim = ClaimRequest::new(&key, ClaimToken::random(), LEASE).event_type(Some(&event_type));
    let answer = store.enqueue(&claim, &StoredRequest::new("a head", body, SystemTime::now())).await;
    assert!(matches!(answer, Ok(Claim::Fresh { .. })), "{answer:?}");
}
