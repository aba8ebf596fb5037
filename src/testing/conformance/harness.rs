use std::future::Future;
use std::time::Duration;

use super::{claims, fencing, keys, leases, model, races, retention};
use crate::store::Store;

/// How many random sequences [`run`] tries: few, since on a real clock each takes seconds.
const SEQUENCES: u32 = 8;
const SEED: u64 = 0x5EED;

/// Makes the stores for the checks, and lets time pass.
pub trait Harness: Send + Sync {
    /// The store under check.
    type Store: Store;

    /// Creates a new, empty store. All of them are on the clock that [`pass`](Self::pass) moves.
    fn store(&self) -> impl Future<Output = Self::Store> + Send;

    /// Lets time pass on the store's clock: turns a manual one, waits for a real one.
    fn pass(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// The lease of claims that have to lapse; 30 seconds unless overridden.
    ///
    /// A harness on a real clock shortens it, to no less than the store can measure and thirty calls take.
    fn lease(&self) -> Duration {
        Duration::from_secs(30)
    }

    /// The retention of records that have to expire; one minute unless overridden. As for the lease, a real clock
    /// wants less.
    fn retention(&self) -> Duration {
        Duration::from_secs(60)
    }
}

/// Runs every check.
///
/// # Panics
///
/// If a check fails, with its name and how it failed.
pub async fn run(harness: &impl Harness) {
    claims::run(harness).await;
    fencing::run(harness).await;
    leases::run(harness).await;
    retention::run(harness).await;
    keys::run(harness).await;
    races::run(harness).await;
    model(harness, SEED, SEQUENCES).await;
}
