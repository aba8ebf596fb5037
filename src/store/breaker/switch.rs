use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::circuit::{Change, Circuit, CircuitState, Policy, Role, Ticket};
use crate::clock::Clock;
use crate::store::{StoreError, StoreErrorKind};
use crate::{random, telemetry};

/// The circuit as concurrent calls see it. While it is calm, a call that succeeds costs two loads.
pub(super) struct Switch {
    circuit: Mutex<Circuit>,
    /// The circuit's epoch, shifted by one; the lowest bit is set unless it is calm.
    summary: AtomicU64,
    clock: Arc<dyn Clock>,
    hung_after: Duration,
    closed: Notify,
}

impl Switch {
    pub(super) fn new(policy: Policy, hung_after: Duration, clock: Arc<dyn Clock>) -> Self {
        let circuit = Mutex::new(Circuit::new(policy));
        Self { circuit, summary: AtomicU64::new(0), clock, hung_after, closed: Notify::new() }
    }

    pub(super) fn state(&self) -> CircuitState {
        if self.calm_epoch().is_some() { CircuitState::Closed } else { self.lock().state() }
    }

    /// Ready when the circuit is closed the next time.
    pub(super) fn closed(&self) -> impl Future<Output = ()> {
        self.closed.notified()
    }

    /// The right to ask the store for a claim, or none.
    pub(super) fn admit(&self) -> Option<Call<'_>> {
        if let Some(epoch) = self.calm_epoch() {
            return Some(self.call(Ticket { role: Role::Claim, epoch }));
        }
        let now = self.clock.monotonic();
        let ticket = self.on_circuit(|circuit| circuit.admit(now))?;
        if ticket.role == Role::Probe {
            tell(Change::Probing);
        }
        Some(self.call(ticket))
    }

    /// The right to settle a claim, which nobody is refused.
    pub(super) fn settle(&self) -> Call<'_> {
        self.call(Ticket { role: Role::Settlement, epoch: self.summary.load(Ordering::Acquire) >> 1 })
    }

    fn call(&self, ticket: Ticket) -> Call<'_> {
        Call { switch: self, ticket, pending_since: None, over: false }
    }

    fn calm_epoch(&self) -> Option<u64> {
        let summary = self.summary.load(Ordering::Acquire);
        (summary & 1 == 0).then_some(summary >> 1)
    }

    fn succeeded(&self, ticket: Ticket) {
        if ticket.role == Role::Settlement || self.calm_epoch() == Some(ticket.epoch) {
            return;
        }
        if let Some(change) = self.on_circuit(|circuit| circuit.succeeded(ticket)) {
            tell(change);
            self.closed.notify_waiters();
        }
    }

    fn failed(&self, ticket: Ticket) {
        let now = self.clock.monotonic();
        if let Some(change) = self.on_circuit(|circuit| circuit.failed(ticket, now, random::fraction())) {
            tell(change);
        }
    }

    fn on_circuit<T>(&self, act: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = self.lock();
        let outcome = act(&mut circuit);
        self.summary.store(circuit.epoch() << 1 | u64::from(!circuit.is_calm()), Ordering::Release);
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, Circuit> {
        self.circuit.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One call to the store, whose end the circuit learns: also when it is dropped.
pub(super) struct Call<'a> {
    switch: &'a Switch,
    ticket: Ticket,
    pending_since: Option<Instant>,
    over: bool,
}

impl Call<'_> {
    pub(super) fn is_probe(&self) -> bool {
        self.ticket.role == Role::Probe
    }

    /// Awaits the store's answer.
    pub(super) async fn watch<T>(
        mut self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut answer = pin!(answer);
        let answer = poll_fn(|cx| {
            let polled = answer.as_mut().poll(cx);
            // Timed from here and not from the start: what is answered at once need not read the clock.
            if polled.is_pending() && self.pending_since.is_none() {
                self.pending_since = Some(self.switch.clock.monotonic());
            }
            polled
        })
        .await;
        self.over = true;
        match &answer {
            Err(error) if is_outage(error) => self.switch.failed(self.ticket),
            _ => self.switch.succeeded(self.ticket),
        }
        answer
    }

    /// The same, with a time after which the store is taken for hung.
    pub(super) async fn watch_within<T>(
        self,
        deadline: Duration,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let timed = async {
            let answer = tokio::time::timeout(deadline, answer).await;
            answer.unwrap_or_else(|_| Err(StoreError::new(StoreErrorKind::TimedOut)))
        };
        self.watch(timed).await
    }
}

impl Drop for Call<'_> {
    /// Whoever drops a call that has long been pending has lost patience with the store; one that was just begun was
    /// dropped for reasons of its caller's own.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let now = self.switch.clock.monotonic();
        match self.pending_since {
            Some(since) if now.saturating_duration_since(since) >= self.switch.hung_after => {
                self.switch.failed(self.ticket);
            }
            _ => self.switch.on_circuit(|circuit| circuit.abandoned(self.ticket, now)),
        }
    }
}

/// Whether an error is about the store and not about one claim: a store that is full, that found a strange record, or whose
/// record somebody's transaction holds, is there.
pub(super) fn is_outage(error: &StoreError) -> bool {
    !matches!(error.kind(), StoreErrorKind::Full | StoreErrorKind::Corrupt | StoreErrorKind::Locked)
}

fn tell(change: Change) {
    match change {
        Change::Opened { failures, cool_down } => telemetry::circuit_opened(failures, cool_down),
        Change::Reopened { cool_down } => telemetry::circuit_reopened(cool_down),
        Change::Probing => telemetry::circuit_probed(),
        Change::Closed => telemetry::circuit_closed(),
    }
}
