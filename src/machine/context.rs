//! The parts that every step of a delivery works with.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::admission::{Admission, DrainHandle, Gate};
use super::claim_state::ClaimState;
use super::failure_hook::FailureHook;
use super::ledger::Ledger;
use super::timing::ask;
use super::verdict::CompletionRecord;
use super::waiters::{PendingCompletions, Waiters};
use crate::EventKey;
use crate::store::{ClaimRequest, Store, StoreError};

/// The state that all deliveries of one layer, or all events of one worker, share.
pub(crate) struct Machine {
    /// Where the replay guard binds bodies to ids.
    pub(super) store: Arc<dyn Store>,
    pub(super) gate: Arc<Gate>,
    pub(super) waiters: Waiters,
    pub(super) pending: PendingCompletions,
}

impl Machine {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self { store, gate: Arc::new(Gate::new()), waiters: Waiters::default(), pending: PendingCompletions::default() }
    }

    pub(crate) fn drain_handle(&self) -> DrainHandle {
        DrainHandle::new(self.gate.clone())
    }

    /// The record of an event that this process has completed and could not tell the store of yet.
    pub(crate) fn pending_record(&self, key: &EventKey) -> Option<CompletionRecord> {
        self.pending.record(key)
    }

    /// Counts work that the drain waits for.
    pub(crate) fn hold(&self) -> Admission {
        self.gate.hold()
    }
}

/// One delivery on its way through the machine.
pub(super) struct Context<'a> {
    pub(super) machine: &'a Arc<Machine>,
    pub(super) terms: &'a Terms,
    pub(super) claim: &'a Arc<ClaimState>,
}

impl<'a> Context<'a> {
    pub(super) fn ledger(&self) -> &'a dyn Ledger {
        &*self.claim.ledger
    }

    pub(super) fn request(&self) -> ClaimRequest<'a> {
        self.claim.request(self.terms.lease)
    }

    /// Awaits a store's answer within the deadline; `None` if the store could not be asked.
    pub(super) async fn ask<T>(&self, verb: &str, answer: impl Future<Output = Result<T, StoreError>>) -> Option<T> {
        ask(verb, &self.claim.key, self.terms.claim_deadline, answer).await
    }

    /// A context for a task that outlives this delivery's future.
    pub(super) fn detached(&self) -> DetachedContext {
        DetachedContext { machine: self.machine.clone(), terms: self.terms.clone(), claim: self.claim.clone() }
    }
}

pub(super) struct DetachedContext {
    machine: Arc<Machine>,
    terms: Terms,
    claim: Arc<ClaimState>,
}

impl DetachedContext {
    pub(super) fn context(&self) -> Context<'_> {
        Context { machine: &self.machine, terms: &self.terms, claim: &self.claim }
    }
}

/// The options of a front-end, as the machine needs them.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) retention: Duration,
    pub(crate) wait: Duration,
    pub(crate) claim_deadline: Duration,
    pub(crate) ready_wait: Duration,
    pub(crate) max_running: usize,
    pub(crate) max_waiting_per_key: usize,
    pub(crate) detach: bool,
    pub(crate) drop_when_lost: bool,
    /// Repeats a failed settlement before the machine returns. Workers set it, since no sender waits for them.
    pub(crate) settle_in_place: bool,
    pub(crate) body_change: BodyChange,
    /// How long the sender is known to wait for its answer, if one waits.
    pub(crate) sender_timeout: Option<Duration>,
    pub(crate) on_permanent: Option<FailureHook>,
}

/// How to treat an id that arrives again with another body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyChange {
    Duplicate,
    Refuse,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            retention: Duration::from_secs(7 * 24 * 3600),
            wait: Duration::from_secs(5),
            claim_deadline: Duration::from_secs(2),
            ready_wait: Duration::from_secs(5),
            max_running: 1024,
            max_waiting_per_key: 64,
            detach: true,
            drop_when_lost: false,
            settle_in_place: false,
            body_change: BodyChange::Duplicate,
            sender_timeout: None,
            on_permanent: None,
        }
    }
}
