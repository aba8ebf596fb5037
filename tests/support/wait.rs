//! Waiting on a machine that may be busy.

use std::future::Future;
use std::time::{Duration, Instant};

/// Nothing takes this long; it only turns a hang into a failure.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the condition is true.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut condition: impl FnMut() -> F) {
    let begun = Instant::now();
    while !condition().await {
        assert!(begun.elapsed() < PATIENCE, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
