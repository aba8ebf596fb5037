//! The store as an inbox.

mod batches;
mod bounds;
mod conformance;
mod durability;
mod failover;
mod full;
mod keys;
mod kinds;
mod late;
mod random;
mod recovery;
pub(crate) mod site;
mod traces;
mod waking;
mod workers;
