//! Two receivers on one store act as one.

use std::collections::BTreeSet;

use tokio::task::JoinSet;

use super::backend::Backend;
use super::killed::acknowledged;
use crate::support::process::{LedgerFile, Process};

const EVENTS: usize = 40;

#[tokio::test]
async fn events_delivered_to_both_run_once() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("together-{}", backend.name));
        let ours = ["--store", &backend.address, "--ledger", ledger.path(), "--handler-delay-ms", "20"];
        let processes = std::sync::Arc::new([(); 2].map(|()| Process::start("receiver", &ours)));
        let mut senders = JoinSet::new();
        for delivery in 0..EVENTS * 6 {
            let processes = processes.clone();
            // The deliveries of one event are in flight at once, at both.
            senders
                .spawn(async move { acknowledged(&processes[delivery % 2], &format!("evt_{}", delivery / 6)).await });
        }
        senders.join_all().await;
        let effects = ledger.lines();
        let ids: BTreeSet<_> = effects.iter().map(|line| id(line)).collect();
        assert_eq!((effects.len(), ids.len()), (EVENTS, EVENTS), "{}: {effects:?}", backend.name);
    }
}

fn id(line: &str) -> String {
    let line: serde_json::Value = serde_json::from_str(line).expect("a line of the ledger");
    line["id"].as_str().expect("an id").to_owned()
}
