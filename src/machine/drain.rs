use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::admission::Gate;
use super::within;
use crate::telemetry;

/// How long what was dropped may take to release its claims.
const RELEASE_TIME: Duration = Duration::from_secs(2);

/// Ends the deliveries of a layer and of its clones before the process exits.
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::{WebhookLayer, scheme, store::MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
/// let layer = WebhookLayer::new(scheme::timestamped("whsec_x")?, MemoryStore::new());
/// let drain = layer.drain_handle();
/// // … after SIGTERM:
/// let drained = drain.drain(Duration::from_secs(20)).await;
/// assert_eq!(drained.dropped, 0);
/// # Ok::<(), tower_webhook::ConfigError>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct DrainHandle(pub(super) Arc<Gate>);

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// How many deliveries were dropped at the deadline, their claims released for the sender's retry.
    pub dropped: usize,
}

impl DrainHandle {
    /// From now on new deliveries get a 503 with `Retry-After`. Waits for the running handlers, for those whose sender has
    /// hung up too, and for completions that are being retried. What is not done by the deadline is dropped and released.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        self.0.close();
        if within(deadline, self.0.idle()).await.is_some() {
            return Drained { dropped: 0 };
        }
        let dropped = self.0.running();
        self.0.abort();
        let _ = within(RELEASE_TIME, self.0.idle()).await;
        telemetry::drained(dropped);
        Drained { dropped }
    }

    /// How many deliveries are running now, detached ones and retried completions included.
    #[must_use]
    pub fn running(&self) -> usize {
        self.0.running()
    }
}

impl fmt::Debug for DrainHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DrainHandle").field("running", &self.running()).finish()
    }
}
