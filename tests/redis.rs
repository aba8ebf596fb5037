//! The Redis store against real servers: the contract, and the faults that it must survive.
//!
//! Every test starts servers of its own. The rows in comments and names number the faults.

mod support;

#[path = "redis/breaks.rs"]
mod breaks;
#[path = "redis/builders.rs"]
mod builders;
#[path = "redis/check.rs"]
mod check;
#[path = "redis/cluster.rs"]
mod cluster;
#[path = "redis/conformance.rs"]
mod conformance;
#[path = "redis/connections.rs"]
mod connections;
#[path = "redis/full.rs"]
mod full;
#[path = "redis/harness.rs"]
mod harness;
#[path = "redis/inbox.rs"]
mod inbox;
#[path = "redis/old_server.rs"]
mod old_server;
#[path = "redis/outage.rs"]
mod outage;
#[path = "redis/receiver.rs"]
mod receiver;
#[path = "redis/refusals.rs"]
mod refusals;
#[path = "redis/replication.rs"]
mod replication;
#[path = "redis/restart.rs"]
mod restart;
#[path = "redis/rights.rs"]
mod rights;
#[path = "redis/secrecy.rs"]
mod secrecy;
#[path = "redis/sentinel.rs"]
mod sentinel;
#[path = "redis/states.rs"]
mod states;
#[path = "redis/together.rs"]
mod together;
#[path = "redis/values.rs"]
mod values;
