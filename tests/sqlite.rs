//! The SQLite store: the conformance suite, and what is its own: rows, clocks, locks, transactions of handlers, processes, full disks.

mod support;

#[path = "sqlite/bed.rs"]
mod bed;
#[path = "sqlite/clocks.rs"]
mod clocks;
#[path = "sqlite/conformance.rs"]
mod conformance;
#[path = "sqlite/contention.rs"]
mod contention;
#[path = "sqlite/deliveries.rs"]
mod deliveries;
#[path = "sqlite/disks.rs"]
mod disks;
#[path = "sqlite/enlisting.rs"]
mod enlisting;
#[path = "sqlite/leaving.rs"]
mod leaving;
#[path = "sqlite/locks.rs"]
mod locks;
#[path = "sqlite/processes.rs"]
mod processes;
#[path = "sqlite/rows.rs"]
mod rows;
