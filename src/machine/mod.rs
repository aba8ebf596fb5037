//! The one machine behind every front-end: claim → run → settle.
//!
//! [`Machine::drive`] in `machine` is the story. Each step that it takes is a file, in this order: `admission` →
//! `replay_guard` → `claim` (which waits while another delivery holds it) → `run` (which renews the lease) → `settle`.
//! `ledger` shows side by side what the kinds of deliveries do differently.

mod admission;
mod claim;
mod claim_state;
mod context;
mod detach;
mod failure_hook;
mod ledger;
#[allow(clippy::module_inception, reason = "the machine is what this module is about")]
mod machine;
mod replay_guard;
mod run;
mod settle;
mod timing;
mod verdict;
mod waiters;

pub use self::admission::{DrainHandle, Drained};

pub(crate) use self::{
    admission::Admission,
    claim_state::{ClaimState, Stage},
    context::{BodyChange, Machine, Terms},
    detach::DetachOnDrop,
    failure_hook::FailureHook,
    ledger::{InboxLedger, InlineLedger, Ledger, NoIdLedger, WorkerLedger},
    machine::Ended,
    replay_guard::ReplayGuard,
    run::{NotReady, PANICKED, SERVICE_FAILED, Work},
    settle::Settled,
    timing::{Deadline, ask, either, within},
    verdict::{CompletesFn, CompletionRecord, RetryReason, Verdict, verdict_of},
};
