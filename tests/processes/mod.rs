//! Receivers in processes of their own, on real stores, killed and stopped with real signals.

mod backend;
mod inbox;
mod instances;
mod killed;
mod ledger;
mod pooled;
mod zombies;
