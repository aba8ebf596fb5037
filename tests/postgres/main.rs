//! The Postgres store against real servers: the contract, and the faults that it must survive.
//!
//! Tests that leave the server alone share one, each with a table of its own; the others start their own. The rows in comments
//! and names number the faults.

#[path = "../support/mod.rs"]
mod support;

mod batches;
mod bed;
mod builders;
mod conformance;
mod enlisted;
mod inbox_accepting;
mod inbox_bodies;
mod inbox_bound;
mod inbox_desk;
mod inbox_kinds;
mod inbox_plans;
mod inbox_purging;
mod inbox_restart;
mod inbox_strays;
mod inbox_together;
mod inbox_transactions;
mod inbox_unreadable;
mod inbox_waking;
mod inbox_worker;
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
mod tables;
mod together;
mod unanswered;
mod version_1;
