use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::{Notify, watch};

use crate::rejection::RejectionKind;

/// Counts what is running, and closes for the drain.
pub(crate) struct Gate {
    running: AtomicUsize,
    /// The phase, for those who only look; those who wait for it get it from `phases`.
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
    /// What still runs is to be dropped.
    Aborting,
}

/// The right to run one delivery; counted until it is dropped.
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
        if self.is_at(Phase::Draining) {
            return Err(RejectionKind::Draining);
        }
        Ok(admission)
    }

    /// Counts something that must not be refused and that the drain waits for.
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
    pub(super) fn is_at(&self, phase: Phase) -> bool {
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
        if self.0.running.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_at(Phase::Draining) {
            self.0.idle.notify_waiters();
        }
    }
}
