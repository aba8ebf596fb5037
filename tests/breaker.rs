//! The circuit breaker: what it refuses, what it never holds back, and what its fallback decides.
//!
//! The rows in the comments number the faults. `FAULTS_SEED=<number> cargo test --test breaker random` plays one more
//! random scenario.

mod support;

#[path = "breaker/bench.rs"]
mod bench;
#[path = "breaker/circuit.rs"]
mod circuit;
#[path = "breaker/conformance.rs"]
mod conformance;
#[path = "breaker/enlisting.rs"]
mod enlisting;
#[path = "breaker/fallback.rs"]
mod fallback;
#[path = "breaker/random.rs"]
mod random;
#[path = "breaker/reconciling.rs"]
mod reconciling;
#[path = "breaker/settling.rs"]
mod settling;
