//! Faults that the receiver must survive, on the memory store.
//!
//! Three invariants, whatever happens. *Never lost*: a 2xx means that the handler's effect is there. *Never doubled*: at
//! most one effect per event. *Never let in*: what was not verified reaches neither the store nor the handler. Each module
//! is a theme; the rows in its comments number the faults.

mod bounds;
mod detached;
mod diagnosis;
mod draining;
mod duplicates;
mod failures;
mod hangups;
mod leases;
mod logs;
mod lookups;
mod process;
mod random;
mod secrets;
mod store_outage;
mod tenants;
