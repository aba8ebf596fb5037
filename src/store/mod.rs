//! Where claimed and completed events are remembered.
//!
//! [`Store`] is three verbs, `claim → renew → settle`, each one atomic. [`MemoryStore`] is the embedded default; your
//! own store implements the trait and goes through the conformance suite of `testing::conformance` (feature `testing`).
//! [`BreakerStore`] stands in front of any of them and decides what happens while that store is unreachable. All other
//! stores of this crate are a [`Queue`](crate::queue::Queue), too: they keep events for a worker. `docs/states.md` shows
//! what each of them writes in each state of an event.
//!
//! ```
//! use std::time::Duration;
//! use tower_webhook::EventKey;
//! use tower_webhook::store::{Claim, ClaimRequest, ClaimToken, Completion, Hold, MemoryStore, Store};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let store = MemoryStore::new();
//! let key = EventKey::new("/webhooks/stripe", None, "evt_1");
//! let mine = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
//! let other = ClaimRequest::new(&key, ClaimToken::random(), Duration::from_secs(30));
//!
//! assert!(matches!(store.claim(&mine).await?, Claim::Fresh { .. }));
//! assert!(matches!(store.claim(&other).await?, Claim::InFlight { .. }));
//!
//! let done = Completion::succeeded("200 OK", Duration::from_secs(7 * 24 * 3600));
//! assert_eq!(store.complete(&other, &done).await?, Hold::Lost);
//! assert_eq!(store.complete(&mine, &done).await?, Hold::Held);
//! assert!(matches!(store.claim(&other).await?, Claim::Completed { .. }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod batcher;
pub mod breaker;
mod claim;
mod enlistment;
mod error;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod filter_sql;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod in_transit;
mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
// Documented as `tower_webhook::queue`.
#[doc(hidden)]
pub mod queue;
mod record;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
mod sections;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[allow(clippy::module_inception, reason = "the store is what this module is about")]
mod store;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod trial;

pub(crate) use self::claim::BodyHashes;
pub(crate) use self::enlistment::{COMMITTED, EnlistState, NOT_COMMITTED};
#[cfg(feature = "postgres")]
pub use self::postgres::{PostgresStore, PostgresStoreBuilder};
#[cfg(feature = "redis")]
pub use self::redis::{RedisStore, RedisStoreBuilder};
#[cfg(feature = "sqlite")]
pub use self::sqlite::{SqliteStore, SqliteStoreBuilder};
pub use self::{
    breaker::BreakerStore,
    claim::{Claim, ClaimRequest, ClaimToken, Completion, Ending, Fingerprint, Hold},
    enlistment::{Dialect, Enlistment},
    error::{StoreError, StoreErrorKind},
    memory::{MemoryStats, MemoryStore, MemoryStoreBuilder},
    store::{IntoStore, Store, StoreFuture},
};
