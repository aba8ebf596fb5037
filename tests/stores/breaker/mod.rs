//! The circuit breaker: what it refuses, what it never holds back, and what its fallback decides.
//!
//! The rows in the comments number the faults. `FAULTS_SEED=<number> cargo test --test main stores::breaker::random`
//! plays one more random scenario.

mod circuit;
mod conformance;
mod enlisting;
mod fallback;
mod fixture;
mod random;
mod reconciling;
mod settling;
