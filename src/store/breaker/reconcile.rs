use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::circuit::CircuitState;
use super::conflict::{Conflict, FoundInStore};
use super::fallback::Fallback;
use super::journal::Record;
use super::store::Shared;
use crate::store::{Claim, Hold, StoreError};
use crate::telemetry;

/// How many events are told at once: enough for a store that groups its commits, and few enough to leave it room.
const BATCH: usize = 16;
/// Of one call. A store that is slow, coming back, is to be given a chance.
const DEADLINE: Duration = Duration::from_secs(2);
/// Between two passes over what the store did not take.
const PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Starts to tell the store what was done without it, unless that is under way. There is a task as long as there is
    /// something to tell: its first claim is the probe that finds the store again when nobody else asks.
    pub(super) fn reconcile_in_background(self: &Arc<Self>) {
        let (Some(fallback), Ok(runtime)) = (&self.fallback, Handle::try_current()) else { return };
        if fallback.begin_reconciling() {
            runtime.spawn(Reconciling { shared: self.clone(), ended: false }.run());
        }
    }

    /// Tells the store all that there is from a number on, once, or until the circuit opens. What it does not take stays for
    /// the next time. Returns where to go on then: not with the event that may have opened it.
    async fn reconcile(self: &Arc<Self>, fallback: &Fallback, mut from: u64) -> u64 {
        loop {
            let size = if self.switch.state() == CircuitState::Closed { BATCH } else { 1 };
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

    /// `None` when the store was not asked. One that fails is no reason not to ask for the next event: it may be about this
    /// one alone, and if it is not, the circuit opens.
    async fn transfer(&self, number: u64, record: &Record) -> Option<()> {
        let (fallback, call) = (self.fallback.as_ref()?, self.switch.admit()?);
        let Ok(claim) = call.watch_within(DEADLINE, self.inner.claim(&record.request())).await else {
            return Some(());
        };
        let conflict = |found, same_body| Conflict { key: record.key.clone(), token: record.token, found, same_body };
        match claim {
            // Completed also if it is this very completion, whose reply was lost: telling it again tells which.
            Claim::Fresh { .. } | Claim::Completed { .. } => match (self.complete_late(record).await, claim) {
                (Ok(Hold::Held), _) => fallback.transferred(number, record),
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

    async fn complete_late(&self, record: &Record) -> Result<Hold, StoreError> {
        let (request, completion) = (record.request(), record.completion(self.now()));
        self.switch.settle().watch_within(DEADLINE, self.inner.complete(&request, &completion)).await
    }
}

/// The task. Dropped half-way, with its runtime, it leaves its place to the next.
struct Reconciling {
    shared: Arc<Shared>,
    ended: bool,
}

impl Reconciling {
    async fn run(mut self) {
        let Some(fallback) = &self.shared.fallback else { return };
        let (mut from, mut closed) = (0, self.shared.switch.closed());
        loop {
            from = self.shared.reconcile(fallback, from).await;
            if fallback.end_reconciling() {
                break;
            }
            // What is claimed here is answered here, so there is no hurry.
            let _ = tokio::time::timeout(PAUSE, closed).await;
            closed = self.shared.switch.closed();
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
