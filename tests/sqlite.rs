//! The SQLite store: the conformance suite, and what is its own: durability, several processes, locks, clocks, transactions of handlers.

mod support;

#[path = "sqlite/bed.rs"]
mod bed;
#[path = "sqlite/conformance.rs"]
mod conformance;
