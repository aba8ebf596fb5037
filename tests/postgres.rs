//! The Postgres store against real servers: the contract, and the faults that it must survive.
//!
//! Tests that leave the server alone share one, each with a table of its own; the others start their own. The rows in comments
//! and names number the faults.

mod support;

#[path = "postgres/batches.rs"]
mod batches;
#[path = "postgres/bed.rs"]
mod bed;
#[path = "postgres/builders.rs"]
mod builders;
#[path = "postgres/conformance.rs"]
mod conformance;
#[path = "postgres/enlisted.rs"]
mod enlisted;
#[path = "postgres/inbox_accepting.rs"]
mod inbox_accepting;
#[path = "postgres/inbox_bodies.rs"]
mod inbox_bodies;
#[path = "postgres/inbox_bound.rs"]
mod inbox_bound;
#[path = "postgres/inbox_desk.rs"]
mod inbox_desk;
#[path = "postgres/inbox_kinds.rs"]
mod inbox_kinds;
#[path = "postgres/inbox_plans.rs"]
mod inbox_plans;
#[path = "postgres/inbox_purging.rs"]
mod inbox_purging;
#[path = "postgres/inbox_restart.rs"]
mod inbox_restart;
#[path = "postgres/inbox_strays.rs"]
mod inbox_strays;
#[path = "postgres/inbox_together.rs"]
mod inbox_together;
#[path = "postgres/inbox_transactions.rs"]
mod inbox_transactions;
#[path = "postgres/inbox_unreadable.rs"]
mod inbox_unreadable;
#[path = "postgres/inbox_waking.rs"]
mod inbox_waking;
#[path = "postgres/inbox_worker.rs"]
mod inbox_worker;
#[path = "postgres/locks.rs"]
mod locks;
#[path = "postgres/migrations.rs"]
mod migrations;
#[path = "postgres/outage.rs"]
mod outage;
#[path = "postgres/pooled.rs"]
mod pooled;
#[path = "postgres/purging.rs"]
mod purging;
#[path = "postgres/receiver.rs"]
mod receiver;
#[path = "postgres/refusals.rs"]
mod refusals;
#[path = "postgres/restart.rs"]
mod restart;
#[path = "postgres/rolling.rs"]
mod rolling;
#[path = "postgres/secrecy.rs"]
mod secrecy;
#[path = "postgres/states.rs"]
mod states;
#[path = "postgres/tables.rs"]
mod tables;
#[path = "postgres/together.rs"]
mod together;
#[path = "postgres/unanswered.rs"]
mod unanswered;
#[path = "postgres/version_1.rs"]
mod version_1;
