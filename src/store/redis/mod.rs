//! The store for many instances: Redis 7 or Valkey, standalone, behind a Sentinel, or a Cluster.
//!
//! ```no_run
//! use deadpool_redis::{Config, Runtime};
//! use tower_webhook::store::RedisStore;
//! use tower_webhook::{WebhookLayer, scheme};
//!
//! # async fn build(secret: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let pool = Config::from_url("redis://127.0.0.1/").create_pool(Some(Runtime::Tokio1))?;
//! let store = RedisStore::new(pool);
//! for warning in store.check().await?.warnings {
//!     eprintln!("{warning}");
//! }
//! let layer = WebhookLayer::new(scheme::timestamped(secret)?, store);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! While Redis remembers, at most one delivery of an event runs, whatever number of instances receive it: every verb is one
//! atomic step on one key. Leases and retention run on the server's clock alone. A lease that ends frees the event with no
//! further help. When Redis cannot be asked, deliveries are refused with a 503 and the sender tries again.
//!
//! # What it does not
//!
//! **Redis forgets.** An event that it forgets runs again when it is sent again:
//!
//! - *Without an append-only file* a restart forgets everything, or everything since the last snapshot.
//! - *With `appendfsync everysec`*, the usual setting, a crash forgets the last second or two, not only one of the machine:
//!   while the disk is busy, Redis answers before it has written. `appendfsync always` forgets nothing, and is slower; with
//!   `no-appendfsync-on-rewrite yes` even that forgets, for as long as the file is rewritten.
//! - *A failover* of Sentinel or Cluster forgets what had not reached the replica that is promoted.
//!   [`replicas`](RedisStoreBuilder::replicas) makes that unlikely, and cannot rule it out.
//! - *Eviction* drops claims silently when memory runs out, under every `maxmemory-policy` but `noeviction`: all of them have
//!   a time to live, so that the `volatile-*` policies do not spare them either. Under `noeviction` deliveries are refused.
//!
//! [`check`](RedisStore::check) looks for these at start-up.
//!
//! **Redis goes by the wall clock.** It keeps the time of day at which a lease or a record ends, and not how long it has left.
//! If the clock of its host jumps *forward*, leases end early, so that an event may *run a second time while the first still
//! runs* (which then cannot complete it any more), and records are forgotten early. If it jumps *back*, the events of an
//! instance that died are refused for so much longer. A replica that is promoted goes on by the clock of its own host. Have NTP
//! *slew* the clocks of all of them, and step them only before Redis starts: `check` cannot see how they are set.
//!
//! What must not be forgotten belongs into Postgres or SQLite, where the completion can be a part of the handler's own
//! transaction.
//!
//! # How it uses the pool
//!
//! Two connections, on a Cluster two to every node, are taken *out* of the pool and shared by all deliveries; they no longer
//! count towards its size, so that a pool of one is enough and stays free for others. The pool is asked again when one
//! breaks, when the server turns out not to be the primary any more, and when nothing comes back for
//! [`timeout`](RedisStoreBuilder::timeout); the connections that lie idle in the pool are then dropped, too, since what
//! happened to one has happened to them. While the pool is exhausted and a connection is needed, deliveries are refused when
//! the timeout is over.
//!
//! # What is in Redis
//!
//! One string per event, under the [prefix](RedisStoreBuilder::prefix) and the [key](crate::EventKey): `r`, `c` or `f` for running,
//! completed or failed, the token, the fingerprint of the body, and the event's type or how it ended. Its time to live is the lease
//! or the retention. An event with an id of 30 bytes takes about 225 in all.
//!
//! Events are claimed with `SET … NX GET PX`. Redis 6 does not take `NX` and `GET` together; there a script does the same.

mod builder;
mod check;
mod fault;
mod inbox;
mod lane;
mod line;
mod pool;
mod record;
mod replicas;
mod report;
mod script;
mod store;

pub use self::{
    builder::RedisStoreBuilder,
    pool::RedisPool,
    report::{RedisNode, RedisReport},
    store::RedisStore,
};
