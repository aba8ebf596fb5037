//! The Postgres store against real servers: the contract, and the faults that it must survive.
//!
//! Tests that leave the server alone share one, each with a table of its own; the others start their own. The rows in comments
//! and names number the faults.

mod batches;
mod builders;
mod check;
mod conformance;
mod enlisted;
mod fixture;
mod inbox;
mod instances;
mod locks;
mod migrations;
mod outage;
mod pooled;
mod purging;
mod receiver;
mod refusals;
mod restart;
mod rolling;
mod secrecy;
mod states;
mod tables;
mod unanswered;
mod version_1;
