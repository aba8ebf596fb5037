//! Leased events that are on their way to the worker.

use tokio::runtime::Handle;

use crate::store::queue::Leased;

/// Leased events on their way to a worker. They are released if they are dropped on the way: no worker knows their
/// tokens.
pub(super) struct InTransit<P: Releaser> {
    events: Vec<Leased>,
    releaser: P,
}

/// Releases leased events.
pub(super) trait Releaser: Send + 'static {
    /// Starts to release events, without waiting. Called inside a runtime.
    fn release(&self, events: Vec<Leased>);
}

impl<P: Releaser> InTransit<P> {
    pub(super) fn new(events: Vec<Leased>, releaser: P) -> Self {
        Self { events, releaser }
    }

    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "the others hand over what there is"))]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn take(mut self) -> Vec<Leased> {
        std::mem::take(&mut self.events)
    }
}

impl<P: Releaser> Drop for InTransit<P> {
    fn drop(&mut self) {
        // Without a runtime no store can be asked, and the leases end by themselves.
        if !self.events.is_empty() && Handle::try_current().is_ok() {
            self.releaser.release(std::mem::take(&mut self.events));
        }
    }
}
