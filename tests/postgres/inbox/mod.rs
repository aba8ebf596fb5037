//! The store as an inbox.

mod accepting;
mod bodies;
mod instances;
mod kinds;
mod lost_replies;
mod old_snapshots;
mod plans;
mod purging;
pub(crate) mod queue;
mod restart;
mod transactions;
mod unreadable;
mod waking;
mod worker;
