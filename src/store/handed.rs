//! Events between the statement that leased them and the worker that asked for them.

use tokio::runtime::Handle;

use crate::store::queue::Leased;

/// Events on their way to a worker. Dropped before they have come, they are put back: nobody else knows their tokens.
pub(super) struct Handed<P: PutBack> {
    events: Vec<Leased>,
    place: P,
}

/// Where events are put back.
pub(super) trait PutBack: Send + 'static {
    /// Begins to; nobody waits for it. There is a runtime.
    fn put_back(&self, events: Vec<Leased>);
}

impl<P: PutBack> Handed<P> {
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

impl<P: PutBack> Drop for Handed<P> {
    fn drop(&mut self) {
        // Without a runtime there is nobody to ask, and the leases end by themselves.
        if !self.events.is_empty() && Handle::try_current().is_ok() {
            self.place.put_back(std::mem::take(&mut self.events));
        }
    }
}
