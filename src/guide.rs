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

/// The definitions of the pages' links, which in the files lead to each other.
macro_rules! links {
    () => {
        "[providers]: crate::guide::providers\n\
         [stores]: crate::guide::stores\n\
         [inbox-and-workers]: crate::guide::inbox_and_workers\n\
         [exactly-once]: crate::guide::exactly_once\n\
         [guarantees]: crate::guide::guarantees\n\
         [operations]: crate::guide::operations\n\
         [observability]: crate::guide::observability\n\
         [testing]: crate::guide::testing\n\
         [troubleshooting]: crate::guide::troubleshooting\n\
         [migrating]: crate::guide::migrating\n\
         [benchmarks]: crate::guide::benchmarks\n\
         [faults]: crate::guide::faults\n\
         [states]: crate::guide::states\n\n"
    };
}

macro_rules! pages {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[doc = links!()]
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
