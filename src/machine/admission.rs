//! How many deliveries run, and how they end before the process exits.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};

use super::timing::within;
use crate::rejection::RejectionKind;
use crate::telemetry;

/// Counts what is running, and closes for the drain.
pub(crate) struct Gate {
    running: AtomicUsize,
    /// The phase, for a quick look. `phases` has it for those who wait.
    phase: AtomicU8,
    phases: watch::Sender<Phase>,
    idle: Notify,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    Open,
    /// Nothing new is admitted.
    Draining,
    /// Deliveries that still run are to be dropped.
    Aborting,
}

/// The right to run one delivery, counted until it is dropped.
pub(crate) struct Admission(Arc<Gate>);

impl Gate {
    pub(super) fn new() -> Self {
        Self {
            running: AtomicUsize::new(0),
            phase: AtomicU8::new(Phase::Open as u8),
            phases: watch::Sender::new(Phase::Open),
            idle: Notify::new(),
        }
    }

    pub(super) fn enter(self: &Arc<Self>, max_running: usize) -> Result<Admission, RejectionKind> {
        let one_more = |running| (running < max_running).then_some(running + 1);
        if self.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more).is_err() {
            return Err(RejectionKind::Busy);
        }
        // Counted before the phase is read: a drain that begins afterwards sees this one and waits for it.
        let admission = Admission(self.clone());
        if self.has_reached(Phase::Draining) {
            return Err(RejectionKind::Draining);
        }
        Ok(admission)
    }

    /// Counts work that must not be refused and that the drain waits for.
    pub(super) fn hold(self: &Arc<Self>) -> Admission {
        self.running.fetch_add(1, Ordering::SeqCst);
        Admission(self.clone())
    }

    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    pub(super) fn close(&self) {
        self.advance(Phase::Draining);
    }

    pub(super) fn abort(&self) {
        self.advance(Phase::Aborting);
    }

    /// Ready when nothing is running.
    pub(super) async fn idle(&self) {
        loop {
            let changed = self.idle.notified();
            if self.running() == 0 {
                return;
            }
            changed.await;
        }
    }

    /// Ready once the gate has come to `phase`.
    pub(super) async fn reached(&self, phase: Phase) {
        let mut phases = self.phases.subscribe();
        // The sender is in `self`, so it cannot be gone.
        let _ = phases.wait_for(|now| *now >= phase).await;
    }

    /// Whether the gate has come to `phase`.
    pub(super) fn has_reached(&self, phase: Phase) -> bool {
        self.phase.load(Ordering::SeqCst) >= phase as u8
    }

    fn advance(&self, to: Phase) {
        self.phase.fetch_max(to as u8, Ordering::SeqCst);
        self.phases.send_if_modified(|now| {
            let further = *now < to;
            *now = (*now).max(to);
            further
        });
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        // Only a drain waits for this, and it closes the gate before it looks.
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.has_reached(Phase::Draining) {
            self.0.idle.notify_waiters();
        }
    }
}

/// How long deliveries that were dropped may take to release their claims.
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
pub struct DrainHandle(Arc<Gate>);

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// How many deliveries were dropped at the deadline, their claims released for the sender's retry.
    pub dropped: usize,
}

impl DrainHandle {
    pub(super) fn new(gate: Arc<Gate>) -> Self {
        Self(gate)
    }

    /// From now on new deliveries get a 503 with `Retry-After`. Waits for the running handlers, also for those whose
    /// sender has hung up, and for completions that are being retried. At the deadline the others are dropped, and
    /// their claims released.
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
