//! Workers in processes of their own, killed and stopped: nothing that was acknowledged is lost, and with effect and completion in
//! one transaction nothing is doubled.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::task::JoinSet;

use super::backend::Backend;
use super::killed::acknowledged;
use crate::support::checker::{Dice, asked_seed};
use crate::support::process::{LedgerFile, Process};
use crate::support::socket::PATIENCE;

/// How often workers are killed under load: on each of two transactional stores, so 200 times in all, and on Redis.
const KILLS: usize = 100;
const KILLS_ON_REDIS: usize = 30;
const EVENTS_PER_KILL: usize = 3;

fn receiver(backend: &Backend, ledger: &LedgerFile, arguments: &[&str]) -> Process {
    let ours = ["--mode", "inbox", "--store", &backend.address, "--ledger", ledger.path(), "--retry-pause", "0.1"];
    Process::start("receiver", &[&ours, arguments].concat())
}

fn ledger(backend: &Backend, arguments: &[&str]) -> Process {
    // An attempt in which the worker is killed counts, and here all of them are.
    let ours = ["--inbox", "--attempts", "1000000", "--database", &backend.address];
    Process::start("ledger", &[&ours, arguments].concat())
}

async fn number(process: &Process, path: &str) -> i64 {
    let body = Process::get(process.address, path).await.expect("an answer");
    body.parse().expect("a number")
}

/// The ids in a ledger's lines, and the attempts.
fn effects(ledger: &LedgerFile) -> Vec<(String, u64)> {
    let line = |line: &String| -> (String, u64) {
        let line: serde_json::Value = serde_json::from_str(line).expect("a line of the ledger");
        (line["id"].as_str().expect("an id").to_owned(), line["attempt"].as_u64().unwrap_or_default())
    };
    ledger.lines().iter().map(line).collect()
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let polling = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, polling).await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn row_37_event_of_a_killed_worker_is_run_by_another() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("row-37-{}", backend.name));
        let mut killed = receiver(&backend, &ledger, &["--lease", "1", "--handler-delay-ms", "600000"]);
        assert_eq!(Process::deliver(killed.address, "evt_1").await, Some(200), "{}", backend.name);
        killed.printed("handling evt_1").await;
        killed.signal("KILL");
        let survivor = receiver(&backend, &ledger, &["--lease", "1"]);
        until("the event is run", async || !effects(&ledger).is_empty()).await;
        assert_eq!(effects(&ledger), [("evt_1".to_owned(), 2)], "{}: attempt + 1", backend.name);
        assert_eq!(Process::deliver(survivor.address, "evt_1").await, Some(200), "{}: a duplicate", backend.name);
        assert_eq!(effects(&ledger).len(), 1, "{}", backend.name);
    }
}

#[tokio::test]
async fn row_38_event_that_always_fails_is_given_up_and_others_are_not_blocked() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("row-38-{}", backend.name));
        let failing = ["--fail", "test.event", "--attempts", "3"];
        let mut process = receiver(&backend, &ledger, &failing);
        assert_eq!(Process::deliver(process.address, "evt_1").await, Some(200), "{}", backend.name);
        process.printed("buried").await;
        assert!(effects(&ledger).is_empty(), "{}", backend.name);
        assert_eq!(Process::deliver(process.address, "evt_1").await, Some(200), "{}: done with", backend.name);
        process.signal("KILL");
        let process = receiver(&backend, &ledger, &[]);
        assert_eq!(Process::deliver(process.address, "evt_2").await, Some(200), "{}", backend.name);
        until("the other event is run", async || effects(&ledger) == [("evt_2".to_owned(), 1)]).await;
    }
}

/// A worker that is stopped for longer than its lease, and then goes on.
#[tokio::test]
async fn zombie_worker_pays_nothing() {
    for backend in Backend::transactional() {
        let mut zombie = ledger(&backend, &["--lease-ms", "1000", "--pause-before-ms", "3000"]);
        assert_eq!(Process::deliver(zombie.address, "evt_1").await, Some(200), "{}", backend.name);
        zombie.printed("handling evt_1").await;
        zombie.signal("STOP");
        let owner = ledger(&backend, &["--lease-ms", "1000"]);
        until("the event is paid", async || number(&owner, "/balance").await == 1).await;
        zombie.signal("CONT");
        zombie.printed("lost ").await;
        assert_eq!(number(&owner, "/balance").await, 1, "{}", backend.name);
    }
}

/// `FAULTS_SEED` plays another storm.
#[tokio::test]
async fn balance_is_exact_however_often_workers_are_killed() {
    let seed = asked_seed().unwrap_or(1);
    println!("seed {seed}");
    for backend in Backend::transactional() {
        let mut dice = Dice::new(seed);
        let pauses = ["--lease-ms", "300", "--pause-before-ms", "5", "--pause-inside-ms", "5", "--pause-after-ms", "5"];
        let (mut events, mut known) = (0, BTreeSet::new());
        for _ in 0..KILLS {
            let process = ledger(&backend, &pauses);
            let deliveries = deliver(&process, events..events + EVENTS_PER_KILL);
            events += EVENTS_PER_KILL;
            known.extend(killed_under_way(&process, deliveries, &mut dice).await);
        }
        assert!(known.len() > events / 4, "{}: {} of {events}", backend.name, known.len());
        let last = ledger(&backend, &["--lease-ms", "300"]);
        // Not those that were acknowledged: they must be there, without being sent again.
        for event in (0..events).map(|event| format!("evt_{event}")).filter(|event| !known.contains(event)) {
            acknowledged(&last, &event).await;
        }
        until("nothing is left", async || number(&last, "/unfinished").await == 0).await;
        assert_eq!(number(&last, "/balance").await, events as i64, "{}, seed {seed}", backend.name);
    }
}

/// Without a common transaction an event may run twice, but none that was acknowledged is lost.
#[tokio::test]
async fn acknowledged_events_are_run_however_often_workers_are_killed() {
    let seed = asked_seed().unwrap_or(1);
    println!("seed {seed}");
    let (backend, mut dice) = (Backend::redis(), Dice::new(seed));
    let ledger = LedgerFile::new("inbox-storm-redis");
    let mut events = 0;
    let mut acknowledged = BTreeSet::new();
    for _ in 0..KILLS_ON_REDIS {
        let process =
            receiver(&backend, &ledger, &["--lease", "0.3", "--handler-delay-ms", "5", "--attempts", "1000000"]);
        let deliveries = deliver(&process, events..events + EVENTS_PER_KILL);
        events += EVENTS_PER_KILL;
        acknowledged.extend(killed_under_way(&process, deliveries, &mut dice).await);
    }
    assert!(!acknowledged.is_empty(), "seed {seed}: some were acknowledged");
    let _last = receiver(&backend, &ledger, &["--lease", "0.3", "--attempts", "1000000"]);
    until("all are run", async || {
        let run: BTreeSet<_> = effects(&ledger).into_iter().map(|(id, _)| id).collect();
        acknowledged.is_subset(&run)
    })
    .await;
}

/// Kills a process once some of its deliveries are answered, and a little later: how many and how much later, the dice say. Returns
/// the ids of those that were acknowledged.
///
/// However slow the machine is, some are acknowledged, and are run or wait when the process dies.
async fn killed_under_way(process: &Process, mut deliveries: JoinSet<Option<String>>, dice: &mut Dice) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for _ in 0..dice.below(EVENTS_PER_KILL as u64 + 1) {
        let answer = deliveries.join_next().await.expect("a delivery");
        acknowledged.extend(answer.expect("no panic"));
    }
    tokio::time::sleep(Duration::from_millis(dice.below(30))).await;
    process.signal("KILL");
    acknowledged.extend(deliveries.join_all().await.into_iter().flatten());
    acknowledged
}

/// Starts a delivery of each event, and says which were acknowledged.
fn deliver(process: &Process, events: std::ops::Range<usize>) -> JoinSet<Option<String>> {
    let mut deliveries = JoinSet::new();
    for event in events {
        let (address, id) = (process.address, format!("evt_{event}"));
        deliveries.spawn(async move { (Process::deliver(address, &id).await == Some(200)).then_some(id) });
    }
    deliveries
}
