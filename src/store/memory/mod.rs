//! The embedded store: this process's memory, bounded and compact.
//!
//! Keys are spread over shards, each behind a mutex of its own. A shard keeps the claims that are running in a small
//! hash table and the completed records in a log in the order of their completion, so that what is oldest is always
//! at its head. A completed event costs 32 bytes in the log and 6 to 12 in the index, whatever its id's length: ids are
//! remembered as 128-bit hashes under keys of this store's own, which nobody outside can aim collisions at.
//!
//! ```text
//! store ── shard ── live       token, lease, fingerprint, attempt of every running claim
//!             ├──── completed  log of 32-byte records + index by hash + reasons of the failed ones
//!             └──── released   how often the lately released events were tried
//!    └─── queue ── entry      the events of an inbox, whole
//!             └──── index      by what they are found: who waits for whom, what may be leased, what has ended
//! ```

mod builder;
mod completed;
mod entry;
mod hash;
mod inbox;
mod index;
mod leasable;
mod line;
mod live;
mod log;
mod marks;
mod operating;
mod queue;
mod record;
mod released;
mod shard;
mod store;
mod ticks;
mod waiting;

pub use self::{
    builder::MemoryStoreBuilder,
    store::{MemoryStats, MemoryStore},
};
