use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::EventKey;
use crate::rejection::RejectionKind;

/// Duplicates that wait for the first delivery's outcome, by key.
///
/// Only those who wait are in here; a delivery that nobody waits for pays one atomic load when it settles.
#[derive(Default)]
pub(super) struct Waiters {
    total: AtomicUsize,
    flights: Mutex<HashMap<EventKey, Arc<Flight>>>,
}

/// How the delivery that others waited for has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstEnded {
    Completed,
    Failed,
}

struct Flight {
    seats: AtomicUsize,
    ending: watch::Sender<Option<FirstEnded>>,
    /// Held by the one waiter that asks the store on behalf of all.
    asking: tokio::sync::Mutex<()>,
}

impl Waiters {
    /// A seat among those who wait for `key`.
    pub(super) fn join(&self, key: &EventKey, per_key: usize, in_all: usize) -> Result<Seat<'_>, RejectionKind> {
        let mut flights = self.lock();
        let flight = flights.get(key).cloned().unwrap_or_default();
        if flight.seats.load(Ordering::Relaxed) >= per_key || self.total.load(Ordering::Relaxed) >= in_all {
            return Err(RejectionKind::TooManyWaiting);
        }
        flight.seats.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::SeqCst);
        flights.entry(key.clone()).or_insert_with(|| flight.clone());
        Ok(Seat { waiters: self, key: key.clone(), flight })
    }

    /// Tells everybody who waits for `key` how it ended.
    pub(super) fn ended(&self, key: &EventKey, ending: FirstEnded) {
        if self.total.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(flight) = self.lock().remove(key) {
            flight.ending.send_replace(Some(ending));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<EventKey, Arc<Flight>>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Flight {
    fn default() -> Self {
        Self { seats: AtomicUsize::new(0), ending: watch::Sender::new(None), asking: tokio::sync::Mutex::new(()) }
    }
}

/// One waiting duplicate.
pub(super) struct Seat<'a> {
    waiters: &'a Waiters,
    key: EventKey,
    flight: Arc<Flight>,
}

impl Seat<'_> {
    pub(super) async fn ending(&self) -> FirstEnded {
        let mut endings = self.flight.ending.subscribe();
        let ending = endings.wait_for(Option::is_some).await.ok().and_then(|ending| *ending);
        // The sender is in `self`; without it the careful answer is that it failed.
        ending.unwrap_or(FirstEnded::Failed)
    }

    /// Ready when it is this waiter's turn to ask the store.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.flight.asking.lock().await
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut flights = self.waiters.lock();
        self.waiters.total.fetch_sub(1, Ordering::SeqCst);
        let last = self.flight.seats.fetch_sub(1, Ordering::Relaxed) == 1;
        if last && flights.get(&self.key).is_some_and(|current| Arc::ptr_eq(current, &self.flight)) {
            flights.remove(&self.key);
        }
    }
}
