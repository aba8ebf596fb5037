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
//! # Guarantees
//!
//! While Redis remembers, at most one delivery of an event runs, however many instances receive it: every verb is one
//! atomic step on one key. Leases and retention run on the server's clock alone. A lapsed lease frees its event without
//! further help. When Redis cannot be asked, deliveries are refused with a 503, and the sender tries again.
//!
//! # Limits
//!
//! **Redis forgets.** A forgotten event runs again when it is sent again:
//!
//! - *Without an append-only file*, a restart forgets everything, or everything since the last snapshot.
//! - *With `appendfsync everysec`*, the usual setting, a crash forgets the last second or two, even if only the process
//!   crashes: while the disk is busy, Redis answers before it has written. `appendfsync always` forgets nothing, and is
//!   slower; with `no-appendfsync-on-rewrite yes`, even that forgets while the file is rewritten.
//! - *A failover* of Sentinel or Cluster forgets the writes that had not reached the promoted replica.
//!   [`replicas`](RedisStoreBuilder::replicas) makes that unlikely, and cannot rule it out.
//! - *Eviction* drops claims silently when memory runs out, under every `maxmemory-policy` but `noeviction`: all claims
//!   have a time to live, and so the `volatile-*` policies do not spare them either. Under `noeviction`, new events are
//!   refused and running ones can end: from Redis 7 on, a full server renews, completes and releases claims. Redis 6
//!   refuses completions as well: if memory is freed only after the lease and the receiver have ended, the event runs
//!   again.
//!
//! [`check`](RedisStore::check) looks for these at start-up.
//!
//! **Redis uses the wall clock.** It stores the time of day at which a lease or a record ends, and not how long it
//! still has. If the clock of its host jumps *forward*, leases end early, and an event may *run a second time while the
//! first run goes on* (which then cannot complete the event); records are forgotten early, too. If it jumps *back*, the
//! events of an instance that died are refused for so much longer. A promoted replica uses the clock of its own host.
//! Have NTP *slew* the clocks of all of them, and step them only before Redis starts: `check` cannot see how they are
//! set.
//!
//! Events that must not be forgotten belong in Postgres or SQLite, where the completion can be a part of the
//! handler's own transaction.
//!
//! # Use of the pool
//!
//! Two connections, on a Cluster two to every node, are taken *out* of the pool and shared by all deliveries. They do
//! not count towards its size: a pool of one is enough, and stays free for others. The store takes another connection
//! from the pool when one breaks, when the server turns out not to be the primary any more, and when no reply comes for
//! [`timeout`](RedisStoreBuilder::timeout); it then drops the pool's idle connections as well, since they have probably
//! failed in the same way. While a connection is needed and the pool is exhausted, deliveries are refused after the
//! timeout.
//!
//! # The inbox
//!
//! The store is a [`Queue`](crate::queue::Queue), on Redis 7.0 or Valkey. One script claims an event, appends it to a
//! stream, and makes it due, together with other events that arrived at the same time. After the reply, the sender may
//! forget the event; whether Redis keeps it depends on its configuration:
//!
//! | | the server's process ends | its machine does | failover |
//! |---|---|---|---|
//! | no append-only file | *lost*, or everything since the last snapshot is | the same | lost, if the replica did not have it yet |
//! | `appendfsync everysec` | the last second or two may be *lost* | the same | the same |
//! | `appendfsync always` | kept | kept | the same |
//! | and [`replicas`](RedisStoreBuilder::replicas) | kept | kept | kept, unless another replica is promoted than those that confirmed |
//!
//! [`check`](RedisStore::check) does not warn about `everysec`: it is good enough for claims, since a forgotten event
//! is sent again. An acknowledged event is not sent again: run an inbox with `appendfsync always`.
//!
//! With replicas, an event that too few of them confirm is not acknowledged, nor is a duplicate that finds it; it is in
//! the stream nevertheless, and will run. None of this makes Redis as durable as Postgres: where an accepted event must
//! not be lost, use Postgres or SQLite. Under `maxmemory-policy noeviction`, a full server refuses new events, and
//! workers go on: ended events free memory. Other policies may drop requests, or the whole stream.
//!
//! **On a Cluster**, all keys of an inbox must be in one slot, since they are written together: give the store a
//! [prefix](RedisStoreBuilder::prefix) with a name in braces, such as `{webhooks}:`, and inboxes on several nodes a
//! prefix each. Without one, the verbs of the inbox are errors that say so. A single server and a Sentinel need
//! nothing. Do not move the slot to another node while events arrive: until all of its keys are there, a script sees
//! only some of them, and an event may run twice.
//!
//! **Workers** are woken by a separate connection, on which the store waits for new entries of the stream while a
//! worker is idle. An event that another process retries or releases, or whose predecessor in its order has ended
//! there, adds no entry: it is found at the worker's next [poll](crate::Worker::poll_every). Leases, delays and
//! retention are on the server's clock.
//!
//! **A lease** takes the events that have been due the longest. Endpoints, the types of each endpoint, and the events
//! of each type are in sorted sets by when their first is due, and are merged lazily:
//!
//! - A lease calls four commands for each of its events, and four for each of their kinds: 64 events of 64 kinds cost
//!   about twice as much as 64 of one kind, whether there are 64 kinds in all or thousands. Its cost does not grow with
//!   future retries, nor with a backlog of kinds that the worker's [endpoints](crate::Worker::endpoints) or bulkheads
//!   exclude. All kinds whose first events are due in the same millisecond are read, with one command each.
//! - An event whose lease has lapsed is due, and still its worker's until another worker leases it.
//! - Events of a reply that comes after the worker, or the store's [timeout](RedisStoreBuilder::timeout), has given up
//!   are released, if it comes within five minutes. The reply may also be lost, because the connection breaks, or
//!   because it leads nowhere and stays open: at the timeout the store takes another connection from the pool, searches
//!   the running events for those of its lease, and releases them without counting an attempt.
//! - On a Cluster, the client itself sends a command again when its connection breaks: events that the first one leased
//!   wait until their lease ends.
//!
//! **Scripts are short**, since the server does nothing else meanwhile. The request of an event, its head and body, has
//! a key of its own. Requests above 64 KiB pass through no script: if the event is new, the request is written with a
//! time to live, which the script that accepts the event then removes. A lease reads at most 4 MiB of requests, unless
//! a single one is larger, and reads large ones one by one. Operators' changes are made to 50 events at a time. If the
//! connection breaks meanwhile, that is an error, and some events may have been changed; on a Cluster, whose client
//! sends the command again, fewer may be reported than were changed. Listing dead events is quick, and so is listing up
//! to a thousand running ones; other listings, and [`forget`](crate::queue::Queue::forget) of completed events, go
//! through the stream. Counting reads only the first few due events.
//!
//! **A script that fails**, because a right is missing or a key has another type, is not rolled back. It notes which
//! events it had begun to change, and the next lease repairs these by their records. Every ten seconds in which workers
//! lease, a sweep checks 200 events in the same way, and so finds changes that other programs made. An event that
//! another version wrote, or whose request was deleted, becomes a dead letter, and is logged to `tracing` as an error.
//! If the record of an event is deleted while a worker runs it, its holder is unknown: the worker has lost it, and it
//! runs again when the lease has ended.
//!
//! **Memory**: an accepted event takes its request and about 550 bytes until its retention is over, or for ever if it
//! is a dead letter; [`keep_completed_bodies`](RedisStoreBuilder::keep_completed_bodies) deletes the request earlier.
//! Leases and counts purge expired events, and a background task purges larger numbers. Of every
//! [order](crate::queue::Order) with sequences, the last one that was applied is kept for good.
//!
//! # Keys
//!
//! Each event has a string under the [prefix](RedisStoreBuilder::prefix) and the [key](crate::EventKey). Its time to
//! live is the lease or the retention. An event with an id of 30 bytes takes about 225 in all. The other keys of an
//! inbox are under the prefix and `inbox:`. `docs/states.md` lists them all, and says what they hold.
//!
//! Events are claimed with `SET … NX GET PX`. Redis 6 does not take `NX` and `GET` together; there, a script does the
//! same.
//!
//! # The rights that it needs
//!
//! A user of the server with no other rights, for a store under the default prefix:
//!
//! ```text
//! ACL SETUSER webhooks on >password ~tower-webhook:* +eval +evalsha +get +set +del
//! ```
//!
//! For an inbox, in addition:
//!
//! ```text
//! ACL SETUSER webhooks +exists +hdel +hget +hset +mget +persist +pexpire +pttl +sadd +srandmember +srem +time +xadd
//!   +xdel +xlen +xrange +xread +xrevrange +zadd +zcard +zcount +zrange +zrangebylex +zrangebyscore +zrem +zscan
//!   +zscore
//! ```
//!
//! [`replicas`](RedisStoreBuilder::replicas) need `+wait`, a Cluster `+cluster|slots` and `+ping`, a Sentinel `+role`.
//! With `+info` and `+config|get`, [`check`](RedisStore::check) can warn about the server's configuration. It tries the
//! rights above, and names the missing ones: a script that is refused half-way may have begun to change something.
//
// Read in the order of a delivery: `store`, `claims` for inline claims; `enqueue`, `lease`, `queue`, `operators`,
// `housekeeping` for the queue; `client`, `shared_connection` and `scripts` for what all of them use.

mod builder;
mod check;
mod claims;
mod client;
mod enqueue;
mod entry;
mod error;
mod housekeeping;
mod lease;
mod listener;
mod operators;
mod pool;
mod queue;
mod record;
mod report;
mod scripts;
mod shared_connection;
mod store;

pub use self::{
    builder::RedisStoreBuilder,
    pool::RedisPool,
    report::{RedisNode, RedisReport},
    store::RedisStore,
};
