//! Checks of the behaviour that every [`Store`](crate::store::Store) must have, to run against a store of your own.
//!
//! Implement [`Harness`] (how to get an empty store, how to let time pass) and call [`run`] in a test. It runs every
//! check in turn and panics at the first that fails, with the check's name, the step, the expected and the actual
//! answer. Each theme has a `run` of its own, and each check is a function that can be called alone.
//!
//! ```
//! use std::time::Duration;
//! use tower_webhook::store::MemoryStore;
//! use tower_webhook::testing::ManualClock;
//! use tower_webhook::testing::conformance::{self, Harness};
//!
//! struct Memory(ManualClock);
//!
//! impl Harness for Memory {
//!     type Store = MemoryStore;
//!
//!     async fn store(&self) -> MemoryStore {
//!         MemoryStore::builder().clock(self.0.clone()).build()
//!     }
//!
//!     async fn pass(&self, time: Duration) {
//!         self.0.advance(time);
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() {
//!     conformance::run(&Memory(ManualClock::at_unix(1_700_000_000))).await;
//! }
//! ```
//!
//! # What to expect
//!
//! - **A runtime with several threads.** The races of [`races`] are spawned as 64 tasks; on a single-threaded runtime a
//!   store that never waits runs them one after the other and proves little.
//! - **About fifty stores**, each asked of the harness when a check begins. A store on a server gets a table or a
//!   prefix of its own each time, or leftovers of one check fail the next.
//! - **Real time, on a real clock.** Some twenty waits of two leases or two retentions each, and as many in [`model`].
//!   A harness shortens both to what its server can tell apart, well above the time of thirty round trips; with a
//!   third of a second for each, the whole takes about half a minute.
//! - **No errors.** A [`StoreError`](crate::store::StoreError) fails the check it comes in.
//!
//! Not covered, since stores differ by design: the answers of `renew`, `complete` and `release` for a claim that the
//! store has no trace of (it was released, or lapsed and was forgotten), durability, behaviour during an outage and
//! when the store is full, and several processes on one server. The checks call one store from one process.

pub mod claims;
pub mod fencing;
mod fixture;
mod harness;
pub mod keys;
pub mod leases;
mod model;
pub mod queue;
pub mod races;
pub mod retention;

pub use self::{
    harness::{Harness, run},
    model::model,
};
