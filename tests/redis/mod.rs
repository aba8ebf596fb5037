//! The Redis store against real servers: the contract, and the faults that it must survive.
//!
//! Every test starts servers of its own. The rows in comments and names number the faults.

mod acl;
mod broken_connections;
mod builders;
mod check;
mod cluster;
mod conformance;
mod connections;
mod fixture;
mod inbox;
mod instances;
mod old_server;
mod out_of_memory;
mod outage;
mod receiver;
mod refusals;
mod replication;
mod restart;
mod secrecy;
mod sentinel;
mod states;
mod stored_values;
