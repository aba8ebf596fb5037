//! Receivers in processes of their own, on real stores, killed and stopped with real signals.

#[path = "../support/mod.rs"]
mod support;

mod inbox;
mod killed;
mod ledger;
mod pooled;
mod site;
mod together;
mod zombies;
