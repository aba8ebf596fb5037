//! All integration tests in one binary: what they share is compiled once, and linked once.
//!
//! Each folder is a suite. `cargo test --all-features --test main redis::` runs one of them.

#[path = "../examples/support/mod.rs"]
mod examples;
mod support;

mod bad_input;
#[cfg(feature = "redis")]
mod breaker_servers;
mod builders;
mod docs;
#[cfg(all(feature = "postgres", feature = "sqlite"))]
mod exactly_once;
mod example_programs;
mod faults;
mod inbox;
#[cfg(all(feature = "postgres", feature = "redis"))]
mod lost_leases;
mod messages;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(all(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod processes;
mod receiver;
#[cfg(feature = "redis")]
mod redis;
mod schemes;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stacks;
mod stores;
