//! The conformance suites: the behaviour that every [`Store`](crate::store::Store) and every [`Queue`] must have, to run
//! against one of your own.
//!
//! Implement [`Harness`] (how to get an empty store, how to let time pass), and run the suite of [`store`] in a test; if
//! yours is a queue, that of [`queue`], too. A run tries every case, prints each by its name, and panics at the end if
//! any failed, with the cases' names, the steps, the expected and the actual answers.
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
//!     let harness = Memory(ManualClock::at_unix(1_700_000_000));
//!     conformance::store().run(&harness).await;
//!     conformance::queue().run(&harness).await;
//! }
//! ```
//!
//! # Each case as a test
//!
//! [`Suite::cases`] are the cases by their names, for a test harness that takes its tests from a list, as
//! `libtest-mimic` does, or to run several at once:
//!
//! ```
//! # use std::time::Duration;
//! # use tower_webhook::store::MemoryStore;
//! # use tower_webhook::testing::ManualClock;
//! # use tower_webhook::testing::conformance::{self, Harness};
//! # struct Memory(ManualClock);
//! # impl Harness for Memory {
//! #     type Store = MemoryStore;
//! #     async fn store(&self) -> MemoryStore {
//! #         MemoryStore::builder().clock(self.0.clone()).build()
//! #     }
//! #     async fn pass(&self, time: Duration) {
//! #         self.0.advance(time);
//! #     }
//! # }
//! #[tokio::main]
//! async fn main() {
//!     let mut tests = tokio::task::JoinSet::new();
//!     for case in conformance::store::<Memory>().cases() {
//!         let case = case.clone();
//!         // Each on a clock of its own, because they run at the same time.
//!         tests.spawn(async move { case.run(&Memory(ManualClock::at_unix(1_700_000_000))).await });
//!     }
//!     tests.join_all().await;
//! }
//! ```
//!
//! # What to expect
//!
//! - **A runtime with several threads.** The races are spawned as 64 tasks; on a single-threaded runtime a store that
//!   never waits runs them one after the other and proves little.
//! - **About fifty stores** for each suite, each asked of the harness when a case begins. A store on a server gets a
//!   table or a prefix of its own each time, or leftovers of one case fail the next.
//! - **Real time, on a real clock.** Some twenty waits of two leases or two retentions each, and as many in [`model`].
//!   A harness shortens both to what its server can tell apart, well above the time of thirty round trips; with a
//!   third of a second for each, the whole takes about half a minute.
//! - **No errors.** A [`StoreError`](crate::store::StoreError) fails the case it comes in.
//!
//! Not covered, since stores differ by design: the answers of `renew`, `complete` and `release` for a claim that the
//! store has no trace of (it was released, or lapsed and was forgotten), durability, behaviour during an outage and
//! when the store is full, and several processes on one server. The cases call one store from one process.

mod claims;
mod enqueuing;
mod fixture;
mod leases;
mod leasing;
mod model;
mod operators;
mod ordering;
mod queue_fixture;
mod races;
mod settling;
mod suite;

use std::time::Duration;

pub use self::{
    model::model,
    suite::{Case, Harness, Suite},
};
use crate::store::queue::Queue;

/// The cases of every store: what claims are answered, how long they hold, who may end them, races, and random sequences
/// ([`model`]).
pub fn store<H: Harness>() -> Suite<H> {
    Suite::new("store", [claims::cases(), leases::cases(), races::store_cases(), model::cases()])
}

/// The cases of every [`Queue`], beside those of a [`store`].
pub fn queue<H: Harness<Store: Queue>>() -> Suite<H> {
    let themes = [
        enqueuing::cases(),
        leasing::cases(),
        settling::cases(),
        ordering::cases(),
        operators::cases(),
        races::queue_cases(),
    ];
    Suite::new("queue", themes)
}

/// The cases of a queue whose stores keep the bodies of completed events for `kept`, which may be zero, and their
/// records for longer (`keep_completed_bodies` of a store's builder).
pub fn completed_bodies<H: Harness<Store: Queue>>(kept: Duration) -> Suite<H> {
    Suite::new("completed bodies", [settling::body_cases(kept)])
}
