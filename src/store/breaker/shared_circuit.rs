//! The circuit as concurrent calls share it, and how a call reports its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::circuit::{Circuit, CircuitState, Permit, Policy, Role, Transition};
use crate::clock::Clock;
use crate::lock::lock;
use crate::store::{StoreError, StoreErrorKind};
use crate::{random, telemetry};

/// The circuit as concurrent calls share it. While it is healthy, a call that succeeds costs two loads.
pub(super) struct SharedCircuit {
    circuit: Mutex<Circuit>,
    /// The circuit's epoch, shifted by one; the lowest bit is set unless the circuit is healthy.
    summary: AtomicU64,
    clock: Arc<dyn Clock>,
    hung_after: Duration,
    closed: Notify,
}

impl SharedCircuit {
    pub(super) fn new(policy: Policy, hung_after: Duration, clock: Arc<dyn Clock>) -> Self {
        let circuit = Mutex::new(Circuit::new(policy));
        Self { circuit, summary: AtomicU64::new(0), clock, hung_after, closed: Notify::new() }
    }

    pub(super) fn state(&self) -> CircuitState {
        if self.healthy_epoch().is_some() { CircuitState::Closed } else { lock(&self.circuit).state() }
    }

    /// Returns a future that is ready when the circuit closes the next time.
    pub(super) fn closed(&self) -> impl Future<Output = ()> {
        self.closed.notified()
    }

    /// Permits a claim, or refuses it.
    pub(super) fn admit(&self) -> Option<Call<'_>> {
        if let Some(epoch) = self.healthy_epoch() {
            return Some(self.call(Permit { role: Role::Claim, epoch }));
        }
        let now = self.clock.monotonic();
        let permit = self.on_circuit(|circuit| circuit.admit(now))?;
        if permit.role == Role::Probe {
            report(Transition::Probing);
        }
        Some(self.call(permit))
    }

    /// Permits a settlement, which is never refused.
    pub(super) fn settle(&self) -> Call<'_> {
        self.call(Permit { role: Role::Settlement, epoch: self.summary.load(Ordering::Acquire) >> 1 })
    }

    fn call(&self, permit: Permit) -> Call<'_> {
        Call { circuit: self, permit, pending_since: None, over: false }
    }

    fn healthy_epoch(&self) -> Option<u64> {
        let summary = self.summary.load(Ordering::Acquire);
        (summary & 1 == 0).then_some(summary >> 1)
    }

    fn succeeded(&self, permit: Permit) {
        if permit.role == Role::Settlement || self.healthy_epoch() == Some(permit.epoch) {
            return;
        }
        if let Some(transition) = self.on_circuit(|circuit| circuit.succeeded(permit)) {
            report(transition);
            self.closed.notify_waiters();
        }
    }

    fn failed(&self, permit: Permit) {
        let now = self.clock.monotonic();
        if let Some(transition) = self.on_circuit(|circuit| circuit.failed(permit, now, random::fraction())) {
            report(transition);
        }
    }

    fn on_circuit<T>(&self, act: impl FnOnce(&mut Circuit) -> T) -> T {
        let mut circuit = lock(&self.circuit);
        let outcome = act(&mut circuit);
        self.summary.store(circuit.epoch() << 1 | u64::from(!circuit.is_healthy()), Ordering::Release);
        outcome
    }
}

/// One call to the store. It reports its end to the circuit, also when it is dropped.
pub(super) struct Call<'a> {
    circuit: &'a SharedCircuit,
    permit: Permit,
    pending_since: Option<Instant>,
    over: bool,
}

impl Call<'_> {
    pub(super) fn is_probe(&self) -> bool {
        self.permit.role == Role::Probe
    }

    /// Awaits the store's answer.
    pub(super) async fn watch<T>(
        mut self,
        answer: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut answer = pin!(answer);
        let answer = poll_fn(|cx| {
            let polled = answer.as_mut().poll(cx);
            // Timed from here and not from the start: a call that is answered at once need not read the clock.
            if polled.is_pending() && self.pending_since.is_none() {
                self.pending_since = Some(self.circuit.clock.monotonic());
            }
            polled
        })
        .await;
        self.over = true;
        match &answer {
            Err(error) if is_outage(error) => self.circuit.failed(self.permit),
            _ => self.circuit.succeeded(self.permit),
        }
        answer
    }

    /// Awaits the store's answer for some time, after which the store is taken for hung.
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
    /// A caller that drops a call that has been pending for long has given the store up. A call that has just begun is
    /// dropped for reasons of the caller's own.
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let now = self.circuit.clock.monotonic();
        match self.pending_since {
            Some(since) if now.saturating_duration_since(since) >= self.circuit.hung_after => {
                self.circuit.failed(self.permit);
            }
            _ => self.circuit.on_circuit(|circuit| circuit.abandoned(self.permit, now)),
        }
    }
}

/// Whether an error is about the store and not about one claim. A store that is full, that found an unreadable record,
/// or whose record a transaction holds, is not away.
pub(super) fn is_outage(error: &StoreError) -> bool {
    !matches!(error.kind(), StoreErrorKind::Full | StoreErrorKind::Corrupt | StoreErrorKind::Locked)
}

fn report(transition: Transition) {
    match transition {
        Transition::Opened { failures, cool_down } => telemetry::circuit_opened(failures, cool_down),
        Transition::Reopened { cool_down } => telemetry::circuit_reopened(cool_down),
        Transition::Probing => telemetry::circuit_probed(),
        Transition::Closed => telemetry::circuit_closed(),
    }
}
