//! The SQLite store: the conformance suites, and what is its own: rows, clocks, locks, transactions of handlers, processes, full disks;
//! and the same of its inbox.

#[path = "../support/mod.rs"]
mod support;

mod bed;
mod bodies;
mod clocks;
mod conformance;
mod contention;
mod deliveries;
mod desk;
mod disks;
mod enlisting;
mod inbox;
mod kept;
mod killed;
mod kinds;
mod leaving;
mod lines;
mod locks;
mod processes;
mod rows;
mod site;
mod unreadable;
mod upgrading;
mod workers;
