//! Rows 11 to 13: SIGKILL after the claim, after the effect, after the completion.

use std::time::Duration;

use tokio::task::JoinSet;

use super::backend::Backend;
use crate::support::process::{LedgerFile, Process, next};
use crate::support::socket::PATIENCE;
use crate::support::wait::eventually;

/// Delivers as a sender does, until it is acknowledged, and says how often it was not.
pub(crate) async fn acknowledged(process: &Process, id: &str) -> usize {
    let retrying = async {
        let mut refused = 0;
        while !matches!(Process::deliver(process.address, id).await, Some(200)) {
            refused += 1;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        refused
    };
    tokio::time::timeout(PATIENCE, retrying).await.expect("an acknowledgement")
}

#[tokio::test]
async fn row_11_event_of_a_killed_process_is_run_by_another_when_its_lease_ends() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("row-11-{}", backend.name));
        let ours = ["--store", &backend.address, "--ledger", ledger.path(), "--wait", "0", "--lease", "3"];
        let killed = Process::start("receiver", &[&ours[..], &["--handler-delay-ms", "600000"]].concat());
        let running = killed.deliver_until_running("evt_1").await;
        killed.signal("KILL");
        drop(running);

        let survivor = Process::start("receiver", &ours);
        assert_eq!(
            Process::deliver(survivor.address, "evt_1").await,
            Some(503),
            "{}: the lease still holds",
            backend.name
        );
        acknowledged(&survivor, "evt_1").await;
        assert_eq!(ledger.lines().len(), 1, "{}", backend.name);
        assert_eq!(Process::deliver(survivor.address, "evt_1").await, Some(200), "{}: a duplicate", backend.name);
        assert_eq!(ledger.lines().len(), 1, "{}", backend.name);
    }
}

/// Row 12 where effect and completion have no transaction in common: the event runs again, and its effect is there twice. The
/// documentation says so.
#[tokio::test]
async fn row_12_kill_between_the_effect_and_the_completion_runs_the_event_again() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("twice-{}", backend.name));
        let ours = ["--store", &backend.address, "--wait", "0", "--lease", "1", "--ledger", ledger.path()];
        let killed = Process::start("receiver", &[&ours[..], &["--pause-after-ms", "600000"]].concat());
        let mut deliveries = JoinSet::new();
        deliveries.spawn(Process::deliver(killed.address, "evt_1"));
        eventually("the effect", async || ledger.lines().len() == 1).await;
        killed.signal("KILL");
        assert_eq!(next(&mut deliveries).await, None, "{}", backend.name);

        let survivor = Process::start("receiver", &ours);
        acknowledged(&survivor, "evt_1").await;
        assert_eq!(Process::deliver(survivor.address, "evt_1").await, Some(200), "{}: a duplicate", backend.name);
        assert_eq!(ledger.lines().len(), 2, "{}: at least once", backend.name);
    }
}

/// Row 13: what is completed stays so, whether or not its sender was told.
#[tokio::test]
async fn row_13_kill_between_the_completion_and_the_reply_doubles_nothing() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("untold-{}", backend.name));
        let ours = ["--store", &backend.address, "--wait", "0", "--ledger", ledger.path()];
        let killed = Process::start("receiver", &[&ours[..], &["--hold-reply-ms", "600000"]].concat());
        let survivor = Process::start("receiver", &ours);
        let mut deliveries = JoinSet::new();
        deliveries.spawn(Process::deliver(killed.address, "evt_1"));
        eventually("the effect", async || ledger.lines().len() == 1).await;
        // Only a completed event is acknowledged here: the lease of one that runs holds for longer than this.
        acknowledged(&survivor, "evt_1").await;
        killed.signal("KILL");
        assert_eq!(next(&mut deliveries).await, None, "{}: nobody was told", backend.name);
        assert_eq!(Process::deliver(survivor.address, "evt_1").await, Some(200), "{}: a duplicate", backend.name);
        assert_eq!(ledger.lines().len(), 1, "{}", backend.name);
    }
}

/// What was completed is known after a restart of the receiver, whichever way it ended.
#[tokio::test]
async fn completed_events_survive_the_receiver() {
    for backend in Backend::all() {
        let ledger = LedgerFile::new(&format!("survive-{}", backend.name));
        let ours = ["--store", &backend.address, "--ledger", ledger.path()];
        for id in ["evt_1", "evt_2"] {
            let process = Process::start("receiver", &ours);
            assert_eq!(Process::deliver(process.address, id).await, Some(200));
            process.signal("KILL");
        }
        let process = Process::start("receiver", &ours);
        for id in ["evt_1", "evt_2"] {
            assert_eq!(Process::deliver(process.address, id).await, Some(200), "{}: a duplicate", backend.name);
        }
        assert_eq!(ledger.lines().len(), 2, "{}", backend.name);
    }
}
