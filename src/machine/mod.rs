//! The one machine behind every front-end: claim → run → settle.
//!
//! [`Machine::drive`] is the story; each stage is a file of its own, in the order in which a delivery passes them.

mod admission;
mod asking;
mod backoff;
mod claiming;
mod deadline;
mod detach;
mod drain;
mod drive;
mod enlisted;
mod guarding;
mod pending;
mod renewal;
mod running;
mod settling;
mod terms;
mod unremembered;
mod waiters;
mod waiting;

pub use self::drain::{DrainHandle, Drained};
use crate::claimant::Claimant;

pub(crate) use self::{
    admission::Admission,
    asking::ask,
    deadline::{Deadline, either, within},
    detach::DetachOnDrop,
    drive::{Ended, Machine, NotReady, Record, Verdict, Work},
    settling::Settled,
    terms::{BodyChange, Terms},
};
