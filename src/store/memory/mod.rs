//! The embedded store: this process's memory, bounded and compact.
//!
//! Keys are spread over shards, each behind a mutex of its own. A shard keeps the claims that are running in a small
//! hash table and the completed records in a log in the order of their completion, so that the oldest is always
//! at its head. A completed event costs 32 bytes in the log and 6 to 12 in the index, whatever its id's length: ids are
//! remembered as 128-bit hashes under keys of this store's own, so that no attacker can aim collisions at them.
//!
//! ```text
//! store ─┬─ shard ─┬─ claims     token, lease, fingerprint and attempt of every running claim
//!        │         ├─ completed  log of 32-byte records + index by hash + reasons of the failed ones
//!        │         └─ released   attempts of the events that were released lately
//! queue ─┴─ events ─┬─ entry     the events of the queue, whole
//!                   └─ index     leasable events, orders, ended events
//! ```

mod builder;
mod claims;
mod completed;
mod entry;
mod events;
mod hash;
mod index;
mod leasable;
mod log;
mod queue;
mod shard;
mod store;

pub use self::{
    builder::MemoryStoreBuilder,
    store::{MemoryStats, MemoryStore},
};
