//! The store as an inbox.

#[path = "inbox/batches.rs"]
mod batches;
#[path = "inbox/bounds.rs"]
mod bounds;
#[path = "inbox/conformance.rs"]
mod conformance;
#[path = "inbox/durability.rs"]
mod durability;
#[path = "inbox/failover.rs"]
mod failover;
#[path = "inbox/full.rs"]
mod full;
#[path = "inbox/keys.rs"]
mod keys;
#[path = "inbox/kinds.rs"]
mod kinds;
#[path = "inbox/late.rs"]
mod late;
#[path = "inbox/random.rs"]
mod random;
#[path = "inbox/recovery.rs"]
mod recovery;
#[path = "inbox/site.rs"]
pub(crate) mod site;
#[path = "inbox/traces.rs"]
mod traces;
#[path = "inbox/waking.rs"]
mod waking;
#[path = "inbox/workers.rs"]
mod workers;
