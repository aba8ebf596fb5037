//! The Postgres store against real servers: the contract, and the faults that it must survive.
//!
//! Tests that leave the server alone share one, each with a table of its own; the others start their own. The rows in comments
//! and names number the faults.

mod support;

#[path = "postgres/batches.rs"]
mod batches;
#[path = "postgres/bed.rs"]
mod bed;
#[path = "postgres/conformance.rs"]
mod conformance;
#[path = "postgres/enlisted.rs"]
mod enlisted;
#[path = "postgres/locks.rs"]
mod locks;
#[path = "postgres/outage.rs"]
mod outage;
#[path = "postgres/purging.rs"]
mod purging;
#[path = "postgres/receiver.rs"]
mod receiver;
#[path = "postgres/refusals.rs"]
mod refusals;
#[path = "postgres/restart.rs"]
mod restart;
#[path = "postgres/secrecy.rs"]
mod secrecy;
#[path = "postgres/tables.rs"]
mod tables;
#[path = "postgres/together.rs"]
mod together;
