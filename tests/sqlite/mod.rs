//! The SQLite store: the conformance suites, and what is its own: rows, clocks, locks, transactions of handlers, processes, full disks;
//! and the same of its inbox.

mod bodies;
mod cancelled_calls;
mod check;
mod clocks;
mod conformance;
mod contention;
mod deliveries;
mod disks;
mod enlisting;
mod fixture;
mod inbox;
mod inbox_fixture;
mod killed;
mod kinds;
mod locks;
mod ordering;
mod processes;
mod queue;
mod retention;
mod rows;
mod states;
mod unreadable;
mod upgrading;
mod workers;
