//! The claim of one delivery: the one thing that the machine, the renewal task and the handler's event share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::ledger::Ledger;
use crate::EventKey;
use crate::store::{ClaimRequest, ClaimToken, EnlistState, Fingerprint};

/// The claim of one delivery: its key, its token, and whether the token holds it.
pub(crate) struct ClaimState {
    pub(crate) key: EventKey,
    pub(crate) token: ClaimToken,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) event_type: Option<Box<str>>,
    pub(super) ledger: Arc<dyn Ledger>,
    deduplicated: bool,
    enlisting: OnceLock<Box<EnlistState>>,
    attempt: AtomicU32,
    held: AtomicBool,
    has_held: AtomicBool,
    body_changed: AtomicBool,
    /// How many milliseconds the work took, if that is longer than the sender waits.
    late_after_millis: AtomicU32,
    stage: AtomicU8,
}

/// The progress of a delivery. It decides what happens if the delivery is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// There is no claim to give back: none was asked for, it is settled, or another task settles it.
    NothingToDo,
    /// The claim is held, or it was asked for and is in doubt. Its work may be half done.
    Unfinished,
    /// The work has ended, and must be settled whatever happens.
    Settling,
}

impl ClaimState {
    /// The claim of an event with an id.
    pub(crate) fn new(ledger: Arc<dyn Ledger>, key: EventKey, token: ClaimToken, fingerprint: Fingerprint) -> Self {
        Self {
            key,
            token,
            fingerprint,
            event_type: None,
            ledger,
            deduplicated: true,
            enlisting: OnceLock::new(),
            attempt: AtomicU32::new(0),
            held: AtomicBool::new(false),
            has_held: AtomicBool::new(false),
            body_changed: AtomicBool::new(false),
            late_after_millis: AtomicU32::new(0),
            stage: AtomicU8::new(Stage::NothingToDo as u8),
        }
    }

    /// The same claim, of an event of this type.
    pub(crate) fn typed(self, event_type: Option<Box<str>>) -> Self {
        Self { event_type, ..self }
    }

    /// The same claim; false for an event whose id was made up for this delivery.
    pub(crate) fn deduplicated(self, deduplicated: bool) -> Self {
        Self { deduplicated, ..self }
    }

    /// The request that claims the event, and that every later verb on the claim repeats.
    pub(crate) fn request(&self, lease: Duration) -> ClaimRequest<'_> {
        let request = ClaimRequest::new(&self.key, self.token, lease);
        request.fingerprint(self.fingerprint).event_type(self.event_type.as_deref())
    }

    /// Whether the event has an id to be remembered by.
    pub(crate) fn is_deduplicated(&self) -> bool {
        self.deduplicated
    }

    pub(crate) fn attempt(&self) -> Option<u32> {
        Some(self.attempt.load(Ordering::Relaxed)).filter(|attempt| *attempt > 0)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// Notes that the token holds the claim. A completion that the handler enlists is remembered for `retention`.
    pub(crate) fn mark_held(&self, attempt: Option<u32>, retention: Duration) {
        if let Some(enlistment) = self.ledger.enlistment() {
            self.enlisting.get_or_init(|| Box::new(EnlistState::new(enlistment, retention)));
        }
        self.attempt.store(attempt.unwrap_or(0), Ordering::Relaxed);
        self.held.store(true, Ordering::Release);
        self.has_held.store(true, Ordering::Relaxed);
    }

    /// How the handler can enlist the completion in a transaction of its own, if the store is in a database.
    pub(crate) fn enlisting(&self) -> Option<&EnlistState> {
        self.enlisting.get().map(|state| &**state)
    }

    /// Whether the handler has enlisted the completion.
    pub(crate) fn is_enlisted(&self) -> bool {
        self.enlisting().is_some_and(EnlistState::is_enlisted)
    }

    /// Whether the claim was ever held, and so the handler perhaps called.
    pub(crate) fn has_held(&self) -> bool {
        self.has_held.load(Ordering::Relaxed)
    }

    /// Notes that the store knows the id with another body.
    pub(crate) fn mark_body_changed(&self) {
        self.body_changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_body_changed(&self) -> bool {
        self.body_changed.load(Ordering::Relaxed)
    }

    /// Notes that the work took longer than the sender waits.
    pub(super) fn mark_late(&self, took: Duration) {
        self.late_after_millis.store(u32::try_from(took.as_millis()).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
    }

    /// How long the work took, if that is longer than the sender waits.
    pub(crate) fn late_after(&self) -> Option<Duration> {
        let millis = Some(self.late_after_millis.load(Ordering::Relaxed)).filter(|millis| *millis > 0);
        millis.map(|millis| Duration::from_millis(millis.into()))
    }

    /// Notes that the handler must not rely on the claim any more: it was lost, or is being settled.
    pub(crate) fn mark_lost(&self) {
        self.held.store(false, Ordering::Release);
    }

    pub(crate) fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) == stage as u8
    }

    pub(crate) fn set_stage(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }
}
