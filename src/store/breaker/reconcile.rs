//! Sends the store the completions that were made without it.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::circuit::CircuitState;
use super::fallback::Fallback;
use super::journal::{Completed, Conflict, FoundInStore};
use super::store::Shared;
use crate::store::{Claim, Hold, StoreError};
use crate::telemetry;

/// How many completions are sent at once: enough for a store that groups its commits, and few enough to leave it room.
const BATCH: usize = 16;
/// The deadline of one call. A store that comes back slowly is to be given a chance.
const DEADLINE: Duration = Duration::from_secs(2);
/// The pause between two passes over the completions that the store did not take.
const PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Starts the task that sends the store the completions that it does not have, unless the task is running. It runs
    /// as long as there are any: its first claim is the probe that finds the store again when there are no deliveries.
    pub(super) fn reconcile_in_background(self: &Arc<Self>) {
        let (Some(fallback), Ok(runtime)) = (&self.fallback, Handle::try_current()) else { return };
        if fallback.begin_reconciling() {
            runtime.spawn(Reconciling { shared: self.clone(), ended: false }.run());
        }
    }

    /// Sends the store all completions from a number on, once, or until the circuit opens. Those that the store does
    /// not take stay for the next time. Returns the number to go on with: not that of the event that may have opened
    /// the circuit.
    async fn reconcile(self: &Arc<Self>, fallback: &Fallback, mut from: u64) -> u64 {
        loop {
            let size = if self.circuit.state() == CircuitState::Closed { BATCH } else { 1 };
            let batch = fallback.batch(from, size, self.now());
            let Some((last, _)) = batch.last() else { return 0 };
            let next = last + 1;
            let mut transfers = JoinSet::new();
            for (number, record) in batch {
                let shared = self.clone();
                transfers.spawn(async move { shared.transfer(number, &record).await });
            }
            if transfers.join_all().await.contains(&None) {
                return from;
            }
            from = next;
        }
    }

    /// Returns `None` if the store was not asked. A call that fails is no reason not to send the next completion: the
    /// fault may be about this event alone, and if it is not, the circuit opens.
    async fn transfer(&self, number: u64, record: &Completed) -> Option<()> {
        let (fallback, call) = (self.fallback.as_ref()?, self.circuit.admit()?);
        let Ok(claim) = call.watch_within(DEADLINE, self.inner.claim(&record.request())).await else {
            return Some(());
        };
        let conflict = |found, same_body| Conflict { key: record.key.clone(), token: record.token, found, same_body };
        match claim {
            // The event is completed also if it is by this very completion, whose reply was lost: completing again
            // tells which.
            Claim::Fresh { .. } | Claim::Completed { .. } => match (self.complete_late(record).await, claim) {
                (Ok(Hold::Held), _) => _ = fallback.transferred(number, record),
                (Ok(Hold::Lost), Claim::Completed { same_body }) => {
                    fallback.conflicted(number, record, &conflict(FoundInStore::Completed, same_body));
                }
                _ => {}
            },
            Claim::Accepted { same_body } => {
                fallback.conflicted(number, record, &conflict(FoundInStore::Accepted, same_body));
            }
            Claim::InFlight { same_body } => {
                fallback.in_flight_elsewhere(record, &conflict(FoundInStore::InFlight, same_body), self.now());
            }
        }
        Some(())
    }

    async fn complete_late(&self, record: &Completed) -> Result<Hold, StoreError> {
        let (request, completion) = (record.request(), record.completion(self.now()));
        self.circuit.settle().watch_within(DEADLINE, self.inner.complete(&request, &completion)).await
    }
}

/// The task. Dropped half-way, with its runtime, it lets another one start.
struct Reconciling {
    shared: Arc<Shared>,
    ended: bool,
}

impl Reconciling {
    async fn run(mut self) {
        let Some(fallback) = &self.shared.fallback else { return };
        let (mut from, mut closed) = (0, self.shared.circuit.closed());
        loop {
            from = self.shared.reconcile(fallback, from).await;
            if fallback.end_reconciling() {
                break;
            }
            // The fallback answers claims of these events, so there is no hurry.
            let _ = tokio::time::timeout(PAUSE, closed).await;
            closed = self.shared.circuit.closed();
        }
        self.ended = true;
        telemetry::fallback_reconciled();
    }
}

impl Drop for Reconciling {
    fn drop(&mut self) {
        if let (false, Some(fallback)) = (self.ended, &self.shared.fallback) {
            fallback.stop_reconciling();
        }
    }
}
