//! The circuit breaker in front of a real Redis server that stands still, is killed, and comes back.
//!
//! The rows in the names number the faults. Cool-downs run on a clock of the test's own, so that nothing is a matter of timing.

mod support;

#[path = "breaker_servers/fallback.rs"]
mod fallback;
#[path = "breaker_servers/receiver.rs"]
mod receiver;
#[path = "breaker_servers/refusing.rs"]
mod refusing;
