//! The pages of `docs/`: what to choose, how to run it, and what to do when something is wrong.
//!
//! - [`providers`]: what each provider signs, where its secret is, and what a signature does not say
//! - [`stores`]: which store, and what it promises
//! - [`inbox_and_workers`]: acknowledge first, run later
//! - [`exactly_once`]: effect and completion in one transaction
//! - [`guarantees`]: every promise with its tests; [`faults`] and [`states`] have the details
//! - [`operations`]: deployment checklist, capacity, poolers, Redis' settings, retention, shutdown
//! - [`observability`]: every event with its fields, and what to alert on
//! - [`testing`]: tests without a server and without a sleep
//! - [`troubleshooting`]: why 401, why 503, why it ran twice
//! - [`migrating`]: from a hand-written handler, step by step
//! - [`benchmarks`]: the figures

// The links of the pages lead from file to file. In rustdoc they lead from module to module: of two definitions of a
// link the first one counts, and `guide_links.md` has those.
macro_rules! pages {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[doc = include_str!("guide_links.md")]
            #[doc = include_str!(concat!("../docs/", $file))]
            pub mod $name {}
        )*
    };
}

pages! {
    providers = "providers.md";
    stores = "stores.md";
    inbox_and_workers = "inbox-and-workers.md";
    exactly_once = "exactly-once.md";
    guarantees = "guarantees.md";
    operations = "operations.md";
    observability = "observability.md";
    testing = "testing.md";
    troubleshooting = "troubleshooting.md";
    migrating = "migrating.md";
    benchmarks = "benchmarks.md";
    faults = "faults.md";
    states = "states.md";
}
