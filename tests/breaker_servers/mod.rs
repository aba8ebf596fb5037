//! The circuit breaker in front of a real Redis server that stands still, is killed, and comes back.
//!
//! The rows in the names number the faults. Cool-downs run on a clock of the test's own, so that nothing is a matter of timing.

mod fallback;
mod receiver;
mod refusing;
