//! Faults that the receiver must survive, on the memory store.
//!
//! Three invariants, whatever happens. *Never lost*: a 2xx means that the handler's effect is there. *Never doubled*: at
//! most one effect per event. *Never let in*: what was not verified reaches neither the store nor the handler. Each module
//! is a theme; the rows in its comments number the faults.

mod support;

#[path = "faults/bounds.rs"]
mod bounds;
#[path = "faults/detached.rs"]
mod detached;
#[path = "faults/draining.rs"]
mod draining;
#[path = "faults/duplicates.rs"]
mod duplicates;
#[path = "faults/failures.rs"]
mod failures;
#[path = "faults/hangups.rs"]
mod hangups;
#[path = "faults/leases.rs"]
mod leases;
#[path = "faults/logs.rs"]
mod logs;
#[path = "faults/lookups.rs"]
mod lookups;
#[path = "faults/process.rs"]
mod process;
#[path = "faults/random.rs"]
mod random;
#[path = "faults/secrets.rs"]
mod secrets;
#[path = "faults/store_outage.rs"]
mod store_outage;
#[path = "faults/tenants.rs"]
mod tenants;
