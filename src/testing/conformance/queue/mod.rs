//! Checks of the behaviour that every [`Queue`] must have, beside that of a store.
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
//!     conformance::queue::run(&Memory(ManualClock::at_unix(1_700_000_000))).await;
//! }
//! ```

pub mod bodies;
pub mod enqueuing;
mod fixture;
pub mod leasing;
pub mod operators;
pub mod ordering;
pub mod races;
pub mod settling;

use super::Harness;
use crate::store::queue::Queue;

/// Runs every check of a queue. [`conformance::run`](super::run) runs the checks of a store.
///
/// # Panics
///
/// If a check fails, with its name and how it failed.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    enqueuing::run(harness).await;
    leasing::run(harness).await;
    settling::run(harness).await;
    ordering::run(harness).await;
    operators::run(harness).await;
    races::run(harness).await;
}
