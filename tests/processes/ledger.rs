//! Rows 12, 13 and 16 with effect and completion in one transaction: the `ledger` example, whose balance must be exact.

use std::time::Duration;

use tokio::task::JoinSet;

use super::backend::Backend;
use super::killed::acknowledged;
use crate::support::checker::{Dice, asked_seed};
use crate::support::process::{Process, next};
use crate::support::socket::PATIENCE;

/// How often the ledger is killed in the storm.
const KILLS: usize = 8;
const EVENTS: usize = 30;

fn ledger(backend: &Backend, arguments: &[&str]) -> Process {
    Process::start("ledger", &[&["--database", &backend.address], arguments].concat())
}

async fn balance(process: &Process) -> i64 {
    let body = Process::get(process.address, "/balance").await.expect("an answer");
    body.parse().expect("a number")
}

/// Row 12: the effect is done and not committed. Neither it nor the completion is there afterwards.
#[tokio::test]
async fn row_12_kill_in_the_transaction_leaves_neither() {
    for backend in Backend::transactional() {
        let mut killed = ledger(&backend, &["--lease-ms", "1000", "--pause-inside-ms", "600000"]);
        let mut deliveries = JoinSet::new();
        deliveries.spawn(Process::deliver(killed.address, "evt_1"));
        killed.printed("not committed yet").await;
        killed.signal("KILL");
        assert_eq!(next(&mut deliveries).await, None, "{}", backend.name);
        let survivor = ledger(&backend, &["--lease-ms", "1000"]);
        assert_eq!(balance(&survivor).await, 0, "{}", backend.name);
        acknowledged(&survivor, "evt_1").await;
        assert_eq!(balance(&survivor).await, 1, "{}", backend.name);
    }
}

/// Row 13: committed, and the answer was not sent.
#[tokio::test]
async fn row_13_kill_after_the_commit_and_before_the_reply_doubles_nothing() {
    for backend in Backend::transactional() {
        let killed = ledger(&backend, &["--pause-after-ms", "600000"]);
        let mut deliveries = JoinSet::new();
        deliveries.spawn(Process::deliver(killed.address, "evt_1"));
        let committed = async { while balance(&killed).await != 1 {} };
        tokio::time::timeout(PATIENCE, committed).await.expect("a commit");
        killed.signal("KILL");
        assert_eq!(next(&mut deliveries).await, None, "{}", backend.name);
        let survivor = ledger(&backend, &[]);
        assert_eq!(Process::deliver(survivor.address, "evt_1").await, Some(200), "{}: a duplicate", backend.name);
        assert_eq!(balance(&survivor).await, 1, "{}", backend.name);
    }
}

/// Row 16: stopped before its transaction for longer than its lease.
#[tokio::test]
async fn row_16_zombie_pays_nothing() {
    for backend in Backend::transactional() {
        let zombie = ledger(&backend, &["--lease-ms", "1000", "--wait-ms", "0", "--pause-before-ms", "1000"]);
        let mut deliveries = zombie.deliver_until_running("evt_1").await;
        zombie.signal("STOP");
        let owner = ledger(&backend, &["--lease-ms", "1000"]);
        acknowledged(&owner, "evt_1").await;
        zombie.signal("CONT");
        assert_eq!(next(&mut deliveries).await, Some(503), "{}", backend.name);
        assert_eq!(balance(&owner).await, 1, "{}", backend.name);
    }
}

/// Killed at random moments, while a sender retries everything that was not acknowledged. `FAULTS_SEED` plays another.
#[tokio::test]
async fn balance_is_exact_however_often_the_ledger_is_killed() {
    let seed = asked_seed().unwrap_or(1);
    println!("FAULTS_SEED={seed}");
    for backend in Backend::transactional() {
        let mut dice = Dice::new(seed);
        let pauses =
            ["--lease-ms", "300", "--pause-before-ms", "10", "--pause-inside-ms", "10", "--pause-after-ms", "10"];
        let mut open: Vec<usize> = (0..EVENTS).collect();
        for _ in 0..KILLS {
            let process = ledger(&backend, &pauses);
            let mut deliveries = JoinSet::new();
            for event in open.iter().flat_map(|event| [*event; 2]) {
                let address = process.address;
                deliveries.spawn(async move { (event, Process::deliver(address, &format!("evt_{event}")).await) });
            }
            tokio::time::sleep(Duration::from_millis(dice.below(250))).await;
            process.signal("KILL");
            for (event, status) in deliveries.join_all().await {
                if status == Some(200) {
                    open.retain(|open| *open != event);
                }
            }
        }
        let last = ledger(&backend, &["--lease-ms", "300"]);
        for event in 0..EVENTS {
            acknowledged(&last, &format!("evt_{event}")).await;
        }
        assert_eq!(balance(&last).await, EVENTS as i64, "{}, FAULTS_SEED={seed}", backend.name);
    }
}
