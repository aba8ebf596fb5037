//! Receivers that share a database through a transaction pooler.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::support::process::{LedgerFile, Process};
use crate::support::servers::pgbouncer::Pgbouncer;
use crate::support::servers::postgres::PostgresServer;
use crate::support::socket::PATIENCE;

const EVENTS: usize = 20;

#[tokio::test]
async fn events_delivered_to_both_through_a_pooler_run_once() {
    let server = PostgresServer::start();
    let pooler = Pgbouncer::before(&server);
    for mode in ["inline", "inbox"] {
        let ledger = LedgerFile::new(&format!("pooled-{mode}"));
        let arguments = ["--store", &pooler.url(), "--pooled", "--mode", mode, "--ledger", ledger.path()];
        let processes = [(); 2].map(|()| Process::start("receiver", &arguments));
        let mut senders = JoinSet::new();
        for delivery in 0..EVENTS * 4 {
            let (address, id) = (processes[delivery % 2].address, format!("{mode}_{}", delivery / 4));
            senders.spawn(async move {
                let begun = Instant::now();
                while Process::deliver(address, &id).await != Some(200) {
                    assert!(begun.elapsed() < PATIENCE, "never acknowledged: {id}");
                }
            });
        }
        senders.join_all().await;
        let begun = Instant::now();
        while ledger.lines().len() < EVENTS {
            assert!(begun.elapsed() < PATIENCE, "{mode}: not all are run");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let effects = ledger.lines();
        let events: BTreeSet<_> = effects.iter().map(|line| id(line)).collect();
        assert_eq!((effects.len(), events.len()), (EVENTS, EVENTS), "{mode}: {effects:?}");
    }
}

fn id(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).expect("a line of the ledger");
    line["id"].as_str().expect("an id").to_owned()
}
