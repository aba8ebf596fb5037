//! Receivers in processes of their own, on real stores, killed and stopped with real signals.

mod support;

#[path = "processes/inbox.rs"]
mod inbox;
#[path = "processes/killed.rs"]
mod killed;
#[path = "processes/ledger.rs"]
mod ledger;
#[path = "processes/pooled.rs"]
mod pooled;
#[path = "processes/site.rs"]
mod site;
#[path = "processes/together.rs"]
mod together;
#[path = "processes/zombies.rs"]
mod zombies;
