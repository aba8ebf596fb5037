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
//!   a time to live, so that the `volatile-*` policies do not spare them either. Under `noeviction` new events are refused, and
//!   those that run can end: from Redis 7 on a full server renews claims, completes and releases them. Redis 6 refuses completions,
//!   too. If memory comes back only after the lease has ended, and the receiver has ended by then, such an event runs again.
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
//! # The inbox
//!
//! The store is a [`Queue`](crate::queue::Queue), on Redis 7.0 or Valkey. One script claims the event and adds it to a stream
//! and to what is due, together with others that came at the same time. When that is answered, the sender may forget the event, and
//! whether Redis remembers it is a matter of its configuration:
//!
//! | | the server's process ends | its machine does | failover |
//! |---|---|---|---|
//! | no append-only file | *lost*, or everything since the last snapshot is | the same | lost, if the replica did not have it yet |
//! | `appendfsync everysec` | the last second or two may be *lost* | the same | the same |
//! | `appendfsync always` | kept | kept | the same |
//! | and [`replicas`](RedisStoreBuilder::replicas) | kept | kept | kept, unless another replica is promoted than those that confirmed |
//!
//! [`check`](RedisStore::check) does not warn about `everysec`: for claims it is good enough, since an event that is forgotten is sent
//! again. One that was acknowledged is not, so have an inbox with `appendfsync always`.
//!
//! With replicas, an event that too few of them confirm is not acknowledged, nor is a duplicate that finds it; it is in the stream
//! nevertheless, and is going to be run. Do not take any of this for Postgres: where an accepted event must not be lost, it
//! belongs there, or into SQLite. Under `maxmemory-policy noeviction` a full server refuses new events, and workers go on: what
//! they end frees memory. Under other policies it may drop bodies, or the whole stream.
//!
//! **On a Cluster** all keys of an inbox must be in one slot, since they are written together: give the store a
//! [prefix](RedisStoreBuilder::prefix) with a name in braces, such as `{webhooks}:`, and inboxes that are to be on several nodes a
//! prefix each. Without one the inbox's verbs are errors that say so. A single server and a Sentinel need nothing. Do not move the slot
//! to another node while events come in: until all of its keys are there, a script sees only some of them, and an event may run twice.
//!
//! **Workers** are woken by a connection of its own, on which the store waits for the stream while somebody is idle. It is for
//! arrivals: an event that another process puts back, or whose turn in its order has come there, is found when the worker next
//! [looks](crate::Worker::poll_every). Leases, pauses and retention are on the server's clock.
//!
//! **A lease** takes what has been due the longest. Endpoints, the types of each, and the events of each type are in sorted sets by when
//! their first is due, and are merged lazily. A lease calls four commands for each of its events, and four for each kind that these are of:
//! 64 events of 64 kinds cost about twice as much as 64 of one kind, whether there are 64 kinds in all or thousands. It costs the same with
//! any number of future retries, and with any backlog of kinds that the worker's [endpoints](crate::Worker::endpoints) or bulkheads leave
//! out. Kinds whose first events are due in the same millisecond are all looked at, with one command each. An event whose lease has lapsed
//! is among those that are due, and still its worker's until another one leases it. An answer that comes after the worker, or the store's
//! [timeout](RedisStoreBuilder::timeout), has given up is put back, within five minutes. The answer may also be lost, because the
//! connection breaks, or because it leads nowhere and stays open: at the timeout the store begins to look through the events that run for
//! those that its lease has taken, by a connection that it takes from the pool for that, and puts them back without an attempt. On a
//! Cluster the client itself sends a command again when its connection breaks: events that were leased the first time wait until their
//! lease ends.
//!
//! **Scripts are short**: the server does nothing else meanwhile. Head and body of an event are under a key of their own. Above 64 KiB they
//! pass through no script: they are written with a time to live, for an event that is new, and the script that accepts the event takes that
//! away. A lease takes 4 MiB of them at the most, unless a single one is larger, and asks for large ones one by one. What operators do is
//! done to 50 events at a time. If the connection breaks meanwhile, that is an error, and some events may have been changed; on a Cluster,
//! whose client sends the command again, fewer may be reported than were changed. Listing dead events is quick, and so is listing running
//! ones up to a thousand; other listings, and [`forget`](crate::queue::Queue::forget) of completed events, go through the stream. Counting
//! looks at no event but the first few that are due.
//!
//! **A script that fails**, for want of a right or because of a key of another type, is not rolled back. It notes down which events it
//! had begun to change, and the next lease puts them where their records say. A sweep does the same with 200 events every ten seconds
//! that workers lease, and so finds what other hands have left behind. An event that another version wrote, or whose body somebody
//! deleted, is a dead letter, and told to `tracing` as an error. If somebody deletes the record of an event while a worker runs it, nobody
//! can tell who holds the event: the worker has lost it, and it runs again when the lease has ended.
//!
//! **Memory**: an accepted event takes its parcel and about 550 bytes until its retention is over, or for ever if it is a dead letter;
//! [`keep_completed_bodies`](RedisStoreBuilder::keep_completed_bodies) lets the parcel end earlier. Leases and counts clear expired ones
//! away, and where there are many, a task goes on with it. Of every [order](crate::queue::Order) with a sequence, the last one that was
//! applied is kept for good.
//!
//! # What is in Redis
//!
//! One string per event, under the [prefix](RedisStoreBuilder::prefix) and the [key](crate::EventKey): `r`, `c` or `f` for running,
//! completed or failed, the token, the fingerprint of the body, and the event's type or how it ended. Its time to live is the lease
//! or the retention. An event with an id of 30 bytes takes about 225 in all.
//!
//! Of an inbox it is `a` until the event has been run, without a time to live. Behind an `@` it says which arrival the event is, how
//! often it has been tried, and since or until when it waits (`w`), or since when it runs (`r`) and was due before; `o` is for an event
//! in an order, and `s` for one whose handler was started. An arrival is a number of 19 digits, made of an id of the stream. Beside,
//! under the prefix and `inbox:`, there are these keys:
//!
//! | key | type | holds |
//! |---|---|---|
//! | `events` | stream | of each event that is kept, in the order of arrival, `e`: version, key, order, name of the parcel, type, fingerprint, time, sequence and length of the parcel, each behind its length |
//! | `parcel:`name | string | head and body of an event, behind the head's length; the name is the token under which it was accepted |
//! | `due:`class length`:`endpoint type | sorted set | arrivals of the events of one kind that can be leased, by when they are due |
//! | `types:`class endpoint | sorted set | the types of an endpoint that have any, by when their first is due |
//! | `endpoints:`class | sorted set | the endpoints that have any, by when their first is due |
//! | `running` | sorted set | arrivals of events that were leased, by when the lease ends; `inf` where that was noticed |
//! | `completed` | sorted set | arrivals of completed events, by when their retention is over |
//! | `dead` | sorted set | arrivals of dead letters |
//! | `line:`order | sorted set | arrivals of the events of one order that have not ended: the first one can be leased, or runs |
//! | `applied` | hash | of each order the last sequence that was completed |
//! | `failures` | hash | of each arrival the attempts that failed, a line each |
//! | `unsettled` | set | arrivals that a failed script had begun to change |
//!
//! The class is `u` for events that were never tried, which are due whatever the clock says, and `t` for others. A type is behind a
//! colon, and empty for an event without one.
//!
//! Events are claimed with `SET … NX GET PX`. Redis 6 does not take `NX` and `GET` together; there a script does the same.
//!
//! # The rights that it needs
//!
//! A user of the server who may do nothing else, for a store under the usual prefix:
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
//! [`replicas`](RedisStoreBuilder::replicas) need `+wait`, a Cluster `+cluster|slots` and `+ping`, a Sentinel `+role`. With `+info` and
//! `+config|get`, [`check`](RedisStore::check) can tell what the server's configuration costs. It tries the rights above, and names
//! those that are missing: a script that is refused half-way may have begun to change something.

mod builder;
mod check;
mod claims;
mod client;
mod enqueue;
mod entry;
mod error;
mod housekeeping;
mod inbox;
mod lease;
mod leased_rows;
mod listener;
mod lost_leases;
mod operators;
mod pool;
mod record;
mod replicas;
mod report;
mod rights;
mod scripts;
mod shared_connection;
mod store;

pub use self::{
    builder::RedisStoreBuilder,
    pool::RedisPool,
    report::{RedisNode, RedisReport},
    store::RedisStore,
};
