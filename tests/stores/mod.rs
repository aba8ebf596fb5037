//! The stores that need no server: the memory store and the circuit breaker; and the conformance suite itself.

mod breaker;
mod conformance;
mod memory;
