//! The store as an inbox.

mod batches;
mod conformance;
mod durability;
mod failover;
pub(crate) mod fixture;
mod kinds;
mod late_replies;
mod out_of_memory;
mod random;
mod recovery;
mod repair;
mod script_costs;
mod stored_keys;
mod waking;
mod workers;
