//! Rows 14 and 15: SIGTERM to a receiver in a process of its own, the `receiver` example.

use crate::support::process::{LedgerFile, Process, next};

/// The receiver, with duplicates that do not wait.
fn receiver(ledger: &LedgerFile, arguments: &[&str]) -> Process {
    let ours = ["--wait", "0", "--ledger", ledger.path()];
    Process::start("receiver", &[&ours, arguments].concat())
}

#[tokio::test]
async fn row_14_handler_shorter_than_the_grace_period_finishes() {
    let ledger = LedgerFile::new("row-14");
    let mut process = receiver(&ledger, &["--handler-delay-ms", "1500", "--grace", "20"]);
    let mut running = process.deliver_until_running("evt_1").await;
    process.terminate();
    assert_eq!(next(&mut running).await, Some(200), "its client is answered");
    let (exit, printed) = process.wait().await;
    assert!(exit.success(), "{exit}");
    assert!(printed.contains("drained, 0 dropped"), "{printed}");
    let effects = ledger.lines();
    assert!(effects.len() == 1 && effects[0].contains("evt_1"), "{effects:?}");
}

/// Row 14 for a delivery whose client has gone: the process does not exit under it.
#[tokio::test]
async fn row_14_detached_handler_finishes_before_the_exit() {
    let ledger = LedgerFile::new("row-14-detached");
    let mut process = receiver(&ledger, &["--handler-delay-ms", "1500", "--grace", "20"]);
    let running = process.deliver_until_running("evt_1").await;
    drop(running);
    process.terminate();
    let (exit, printed) = process.wait().await;
    assert!(exit.success(), "{exit}");
    assert!(printed.contains("drained, 0 dropped"), "{printed}");
    assert_eq!(ledger.lines().len(), 1);
}

#[tokio::test]
async fn row_15_handler_longer_than_the_grace_period_is_dropped() {
    let ledger = LedgerFile::new("row-15");
    let mut process = receiver(&ledger, &["--handler-delay-ms", "600000", "--grace", "0.2"]);
    let mut running = process.deliver_until_running("evt_1").await;
    process.terminate();
    let answer = next(&mut running).await;
    assert!(matches!(answer, None | Some(503)), "{answer:?} for work that was not done");
    let (exit, printed) = process.wait().await;
    assert!(exit.success(), "{exit}");
    assert!(printed.contains("drained, 1 dropped"), "{printed}");
    assert!(ledger.lines().is_empty(), "no effect, and no 2xx");
}
