//! Stopping processes: SIGSTOP takes effect a moment after it was sent.

use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until every thread of a process that was sent SIGSTOP has stopped. On a busy machine one may still answer a request that
/// comes at once.
pub(crate) fn wait_until_stopped(process: u32) {
    let begun = Instant::now();
    while has_running_thread(process) {
        assert!(begun.elapsed() < PATIENCE, "process {process} does not stop");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_running_thread(process: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else { return false };
    threads.flatten().any(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // The state comes after the name, which is in parentheses. A thread that has ended has none.
        let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
        state.is_some_and(|state| !"TtZX".contains(state))
    })
}
