//! Leased events that are on their way to the worker.

use tokio::runtime::Handle;

use crate::store::queue::Leased;

/// Leased events on their way to a worker. They are put back if they are dropped on the way: no worker knows their
/// tokens.
pub(super) struct InTransit<P: PutBack> {
    events: Vec<Leased>,
    place: P,
}

/// Puts events back into the queue.
pub(super) trait PutBack: Send + 'static {
    /// Starts to put events back, without waiting. Called inside a runtime.
    fn put_back(&self, events: Vec<Leased>);
}

impl<P: PutBack> InTransit<P> {
    pub(super) fn new(events: Vec<Leased>, place: P) -> Self {
        Self { events, place }
    }

    #[cfg_attr(not(feature = "postgres"), allow(dead_code, reason = "the others hand over what there is"))]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub(super) fn take(mut self) -> Vec<Leased> {
        std::mem::take(&mut self.events)
    }
}

impl<P: PutBack> Drop for InTransit<P> {
    fn drop(&mut self) {
        // Without a runtime no store can be asked, and the leases end by themselves.
        if !self.events.is_empty() && Handle::try_current().is_ok() {
            self.place.put_back(std::mem::take(&mut self.events));
        }
    }
}
