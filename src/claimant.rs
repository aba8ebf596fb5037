//! Who claims what: the one thing that the machine, the renewal task and the handler's event share.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

use crate::EventKey;
use crate::enlist::Lent;
use crate::guard::Guard;
use crate::inbox::{Leased, Parcel};
use crate::store::{ClaimRequest, ClaimToken, Fingerprint};

/// Who claims what, and whether they hold it: shared by the machine, the renewal task and the handler's event.
#[derive(Debug)]
pub(crate) struct Claimant {
    pub(crate) key: EventKey,
    pub(crate) token: ClaimToken,
    pub(crate) fingerprint: Fingerprint,
    pub(crate) event_type: Option<Box<str>>,
    pub(crate) guard: Option<Guard>,
    /// What is to be run later, where there is an inbox.
    parcel: Option<Box<Parcel>>,
    deduplicated: bool,
    remembered: bool,
    lent: OnceLock<Box<Lent>>,
    attempt: AtomicU32,
    held: AtomicBool,
    has_held: AtomicBool,
    body_changed: AtomicBool,
    stage: AtomicU8,
}

/// What dropping the delivery would leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Nothing: the store does not know of it.
    Outside,
    /// A claim, and perhaps half-done work.
    Engaged,
    /// Work that is done and must be settled, whatever happens.
    Settling,
}

impl Claimant {
    pub(crate) fn new(key: EventKey, fingerprint: Fingerprint, event_type: Option<Box<str>>) -> Self {
        Self::with_token(ClaimToken::random(), key, fingerprint, event_type)
    }

    /// Of an event that is not deduplicated. Its token is its id: no other delivery has it.
    pub(crate) fn of_no_id(endpoint: &str, tenant: Option<&str>, event_type: Option<Box<str>>) -> Self {
        let token = ClaimToken::random();
        let key = EventKey::new(endpoint, tenant, &token.to_string());
        let fingerprint = Fingerprint::default();
        Self { deduplicated: false, remembered: false, ..Self::with_token(token, key, fingerprint, event_type) }
    }

    /// Of an event that an inbox has leased.
    pub(crate) fn of_leased(leased: &Leased, deduplicated: bool) -> Self {
        let (key, event_type) = (leased.key.clone(), leased.event_type.clone());
        Self { deduplicated, ..Self::with_token(leased.token, key, leased.fingerprint, event_type) }
    }

    fn with_token(token: ClaimToken, key: EventKey, fingerprint: Fingerprint, event_type: Option<Box<str>>) -> Self {
        Self {
            key,
            token,
            fingerprint,
            event_type,
            guard: None,
            parcel: None,
            deduplicated: true,
            remembered: true,
            lent: OnceLock::new(),
            attempt: AtomicU32::new(0),
            held: AtomicBool::new(false),
            has_held: AtomicBool::new(false),
            body_changed: AtomicBool::new(false),
            stage: AtomicU8::new(Stage::Outside as u8),
        }
    }

    /// The same claimant, with its body bound to its id.
    pub(crate) fn guarded(self, guard: Guard) -> Self {
        Self { guard: Some(guard), ..self }
    }

    /// The same claimant, to be run later: an inbox remembers it, whether it has an id or not.
    pub(crate) fn kept(self, parcel: Parcel) -> Self {
        Self { parcel: Some(Box::new(parcel)), remembered: true, ..self }
    }

    /// What the store is asked to claim, and what it is told of the claim afterwards.
    pub(crate) fn request(&self, lease: Duration) -> ClaimRequest<'_> {
        let request = ClaimRequest::new(&self.key, self.token, lease);
        let parcel = self.parcel.as_deref();
        ClaimRequest { parcel, ..request.fingerprint(self.fingerprint).event_type(self.event_type.as_deref()) }
    }

    /// Whether the event has an id to be remembered by.
    pub(crate) fn is_deduplicated(&self) -> bool {
        self.deduplicated
    }

    /// Whether a store has, or is going to have, a record of it.
    pub(crate) fn is_remembered(&self) -> bool {
        self.remembered
    }

    pub(crate) fn attempt(&self) -> Option<u32> {
        Some(self.attempt.load(Ordering::Relaxed)).filter(|attempt| *attempt > 0)
    }

    pub(crate) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// The claim is held, and its store lends this to it.
    pub(crate) fn took(&self, attempt: Option<u32>, lent: Option<Lent>) {
        if let Some(lent) = lent {
            self.lent.get_or_init(|| Box::new(lent));
        }
        self.attempt.store(attempt.unwrap_or(0), Ordering::Relaxed);
        self.held.store(true, Ordering::Release);
        self.has_held.store(true, Ordering::Relaxed);
    }

    pub(crate) fn lent(&self) -> Option<&Lent> {
        self.lent.get().map(|lent| &**lent)
    }

    /// Whether the handler has put the completion into a transaction of its own.
    pub(crate) fn is_enlisted(&self) -> bool {
        self.lent().is_some_and(Lent::is_enlisted)
    }

    /// Whether the claim was ever held, and so the handler perhaps called.
    pub(crate) fn has_held(&self) -> bool {
        self.has_held.load(Ordering::Relaxed)
    }

    /// The store knows the id with another body.
    pub(crate) fn found_other_body(&self) {
        self.body_changed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_body_changed(&self) -> bool {
        self.body_changed.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) {
        self.held.store(false, Ordering::Release);
    }

    pub(crate) fn is_at(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) == stage as u8
    }

    pub(crate) fn enter(&self, stage: Stage) {
        self.stage.store(stage as u8, Ordering::Release);
    }
}
