//! The SQLite store: the conformance suites, and what is its own: rows, clocks, locks, transactions of handlers, processes, full disks;
//! and the same of its inbox.

mod support;

#[path = "sqlite/bed.rs"]
mod bed;
#[path = "sqlite/bodies.rs"]
mod bodies;
#[path = "sqlite/clocks.rs"]
mod clocks;
#[path = "sqlite/conformance.rs"]
mod conformance;
#[path = "sqlite/contention.rs"]
mod contention;
#[path = "sqlite/deliveries.rs"]
mod deliveries;
#[path = "sqlite/desk.rs"]
mod desk;
#[path = "sqlite/disks.rs"]
mod disks;
#[path = "sqlite/enlisting.rs"]
mod enlisting;
#[path = "sqlite/inbox.rs"]
mod inbox;
#[path = "sqlite/kept.rs"]
mod kept;
#[path = "sqlite/killed.rs"]
mod killed;
#[path = "sqlite/kinds.rs"]
mod kinds;
#[path = "sqlite/leaving.rs"]
mod leaving;
#[path = "sqlite/lines.rs"]
mod lines;
#[path = "sqlite/locks.rs"]
mod locks;
#[path = "sqlite/processes.rs"]
mod processes;
#[path = "sqlite/rows.rs"]
mod rows;
#[path = "sqlite/site.rs"]
mod site;
#[path = "sqlite/states.rs"]
mod states;
#[path = "sqlite/unreadable.rs"]
mod unreadable;
#[path = "sqlite/upgrading.rs"]
mod upgrading;
#[path = "sqlite/workers.rs"]
mod workers;
