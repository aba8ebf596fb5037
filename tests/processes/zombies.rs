//! Row 16: a process that is stopped past its lease, and then goes on.

use super::backend::Backend;
use super::killed::acknowledged;
use crate::support::process::{LedgerFile, Process, next};

#[tokio::test]
async fn row_16_zombies_completion_is_refused_and_its_client_is_told() {
    for backend in Backend::all() {
        let (stale, fresh) =
            (LedgerFile::new(&format!("zombie-{}", backend.name)), LedgerFile::new(&format!("owner-{}", backend.name)));
        let ours = ["--store", &backend.address, "--wait", "0", "--lease", "1"];
        let zombie =
            Process::start("receiver", &[&ours[..], &["--handler-delay-ms", "500", "--ledger", stale.path()]].concat());
        let owner = Process::start("receiver", &[&ours[..], &["--ledger", fresh.path()]].concat());
        let mut running = zombie.deliver_until_running("evt_1").await;
        zombie.signal("STOP");
        acknowledged(&owner, "evt_1").await;
        zombie.signal("CONT");
        assert_eq!(next(&mut running).await, Some(503), "{}: what it did is not the event's outcome", backend.name);
        assert_eq!(fresh.lines().len(), 1, "{}: the newer owner ran it", backend.name);
        assert_eq!(
            Process::deliver(zombie.address, "evt_1").await,
            Some(200),
            "{}: and its completion stands",
            backend.name
        );
    }
}
