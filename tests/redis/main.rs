//! The Redis store against real servers: the contract, and the faults that it must survive.
//!
//! Every test starts servers of its own. The rows in comments and names number the faults.

#[path = "../support/mod.rs"]
mod support;

mod breaks;
mod builders;
mod check;
mod cluster;
mod conformance;
mod connections;
mod full;
mod harness;
mod inbox;
mod old_server;
mod outage;
mod receiver;
mod refusals;
mod replication;
mod restart;
mod rights;
mod secrecy;
mod sentinel;
mod together;
mod values;
