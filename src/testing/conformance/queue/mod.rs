//! The behaviour that every [`Queue`] must have, beside that of a store.
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

pub mod accepting;
mod bench;
pub mod bodies;
pub mod leasing;
pub mod operating;
pub mod ordering;
pub mod races;
pub mod settling;

use super::Harness;
use crate::store::queue::Queue;

/// Runs every check of an inbox. The checks of a store are run by [`conformance::run`](super::run).
///
/// # Panics
///
/// If one fails, saying which and how.
pub async fn run(harness: &impl Harness<Store: Queue>) {
    accepting::run(harness).await;
    leasing::run(harness).await;
    settling::run(harness).await;
    ordering::run(harness).await;
    operating::run(harness).await;
    races::run(harness).await;
}
