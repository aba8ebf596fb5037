//! The store for many instances and for handlers that keep their data in Postgres: one table, durable, exact.
//!
//! Every claim, renewal, completion and release is committed before it is answered, as durably as the server's
//! `synchronous_commit` says. Concurrent ones share a statement, a commit and a flush to disk: while one batch is under way
//! the next one gathers, and nothing waits for a timer.
//!
//! A row that somebody's transaction holds delays nobody: no statement of this store waits for it. So a handler can put its
//! completion into its own transaction; what it holds counts as in flight until it ends.
//!
//! Leases and retentions are counted on the server's clock, so the instances' clocks do not matter.
//!
//! ```no_run
//! use sqlx::PgPool;
//! use tower_webhook::{WebhookLayer, scheme, store::PostgresStore};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let pool = PgPool::connect("postgres://app@localhost/app").await?;
//! let store = PostgresStore::builder(pool).table("webhooks.events")?.build();
//! store.migrate().await?;
//! let layer = WebhookLayer::new(scheme::stripe("whsec_…")?, store);
//! # Ok(())
//! # }
//! ```
//!
//! # The table
//!
//! [`SCHEMA_SQL`] is the default one; [`PostgresStore::schema_sql`] is the same under the configured name, for teams that run
//! their own migrations. Rows are kept until their retention is over, and deleted in small batches some time later. A claim
//! that was given back is kept for a day, so that attempts are counted. A row whose claim lapsed and that nobody came back
//! to stays: it is an event whose outcome nobody knows. A role that did not create it needs `SELECT`, `INSERT`, `UPDATE` and `DELETE` on
//! the table and, for the inbox, `USAGE` on its sequence; [`migrate`](PostgresStore::migrate) needs no more than that on a table that
//! is complete.
//!
//! # The inbox
//!
//! An event that is [accepted](crate::queue::Queue::enqueue) is a row of the same table, with the request in it, and committed
//! before the sender is answered. A worker's lease is a running claim like any other, so
//! [`complete_in`](crate::WebhookEvent::complete_in) works from a worker, too. Rows that are claimed inline have none of the inbox's
//! columns, and are in none of its indexes.
//!
//! - Leases are taken `FOR UPDATE SKIP LOCKED`, in the order of an index of what is due: what one costs does not depend on how many
//!   events are waiting. A worker that asks for some [endpoints](crate::Worker::endpoints) only, or that limits how many events of a kind
//!   run, looks at a few events in that order. If it can lease few of them, it goes from kind to kind in another index: what it
//!   leaves out costs it nothing, however many events they are. A thousand kinds are looked at by one statement, and with more the
//!   next lease goes on. Such a lease is two statements, or four, in place of one.
//! - While a transaction is open for long, a backup for example, what ended since it began stays in the indexes. Once that makes a
//!   walk over the index of what is due take time, leases begin at the first event that is still to be run, or two seconds
//!   before now. What another instance puts back before that place is found by a walk that is repeated after a second, or after twenty times
//!   as long as it takes. An event that stays due and that nobody leases keeps leases from beginning later.
//! - A lease that took effect, and whose answer did not come in time, is put back as soon as the server can be asked.
//! - A lease carries 4 MiB of events, or one event.
//! - A lease alone need not be on disk. If the server crashes it may forget the last ones; the events are leased again, and the
//!   tokens of the forgotten leases can complete nothing.
//! - Workers of all instances are woken by `NOTIFY`, sent after the commit and from a connection of its own: inside of the transaction
//!   it would have all commits of the database wait for each other. One that is lost costs its event a worker's
//!   [poll interval](crate::Worker::poll_every).
//! - Of one [order](crate::queue::Order), a unique index lets one event run at a time. Those behind it are out of the index of what is due until
//!   their turn. Orders longer than 1,024 bytes are written as their beginning and their hash.
//! - Completed events keep their bodies for as long as their records, or [for a shorter time](PostgresStoreBuilder::keep_completed_bodies).
//! - Dead letters are kept until somebody decides. Of an order with sequences, the highest one that was completed is kept for
//!   good: a small row for each, in the state `applied`, from when the last of its events is deleted.
//!
//! # Connections
//!
//! They are made with the pool's options but not taken from the pool, when they are first needed, and are as many however busy the
//! store is:
//!
//! | for | connections | at the most |
//! |---|---|---|
//! | claims and accepted events | 2 | 6 |
//! | renewals, completions and whatever else ends a claim | 1 | 3 |
//! | waking workers, where events are accepted or put back | 1 | 1 |
//! | leases, where a worker runs | 1 | 1 |
//! | looking for events of lost leases, and behind an old snapshot, where a worker runs and there is such | 2 | 2 |
//! | how many events are waiting and which are known, where a receiver [limits](crate::inbox::Inbox::max_waiting_events) them | 1 | 1 |
//! | being woken, where a worker runs | 1 | 1 |
//!
//! There are more than usual while the server leaves claims or settlements unanswered. Such a statement keeps its connection past its
//! [deadline](PostgresStoreBuilder::deadline), so that it is known what it did, and the next one has another connection, until there
//! are as many as the last column says. What is asked then fails at its deadline, and is not sent. Of each connection in the middle
//! column, the oldest such statement is given up after a minute, and another one each minute. Its session on the server ends then, unless
//! it waits to commit, as for a synchronous replica that is away: those sessions stay until the replica is back, or done without.
//!
//! The pool itself serves [`migrate`](PostgresStore::migrate), [`purge`](PostgresStore::purge), and what operators ask.
//! [`check`](PostgresStore::check) opens two more for a moment, and two past the pooler.
//!
//! # Poolers
//!
//! A pooler in session mode needs nothing. One in transaction mode (PgBouncer with `pool_mode = transaction`, Supavisor on port 6543, RDS
//! Proxy) gives every transaction another session, and the store has to be told with [`pooled`](PostgresStoreBuilder::pooled):
//!
//! ```no_run
//! use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
//! use tower_webhook::store::PostgresStore;
//!
//! # async fn example(pooler: PgConnectOptions, server: PgConnectOptions) -> Result<(), Box<dyn std::error::Error>> {
//! // PgBouncer refuses this parameter, unless `ignore_startup_parameters` names it.
//! let pool = PgPoolOptions::new().connect_with(pooler.extra_float_digits(None)).await?;
//! let store = PostgresStore::builder(pool).pooled().direct(server).build();
//! store.migrate().await?;
//! store.check().await?;
//! # Ok(())
//! # }
//! ```
//!
//! | | sessions | `pooled` | `pooled` and [`direct`](PostgresStoreBuilder::direct) |
//! |---|---|---|---|
//! | round trips of a batch of claims, completions or leases | 1 | 4: `BEGIN` with `SET LOCAL`, the statement, its parameters, `COMMIT` | 4 |
//! | round trips of [`complete_in`](crate::WebhookEvent::complete_in) | 1, and another one the first time | 2 | 2 |
//! | workers are woken by other instances | `LISTEN` | no: they [poll](crate::Worker::poll_every) | `LISTEN` |
//! | a missing index of a table above 16 MiB | `CREATE INDEX CONCURRENTLY` | `migrate` refuses, and says so | `CREATE INDEX CONCURRENTLY` |
//!
//! Concurrent questions share a batch as always, so the round trips cost latency more than throughput. Handlers that
//! use such a pool themselves keep to the same rules: every query inside of a transaction, and
//! [`persistent(false)`](sqlx::query::Query::persistent), unless the pooler knows prepared statements. RDS Proxy may pin a session to
//! each of the store's connections, since it does so for `SET` of any kind: nothing breaks, and those sessions are not shared.
//!
//! # What it needs
//!
//! PostgreSQL 14 or later. What the pool sets up per connection (`after_connect`) the connections of this store do not have: name
//! the schema with [`table`](PostgresStoreBuilder::table), or set the search path in the connect options.

//
// Read in the order of a delivery: `store`, then `claims` and `claim_item`, `settle_batch` and `settlement`; `wake`,
// `lease`, `pick`, `scan_start`, `lost_leases`, `backlog` and `operators` for the queue; `connection` and below for what
// all of them use; `migrator`, `schema` and `housekeeping` for the table.

mod backlog;
mod builder;
mod check;
mod claim_item;
mod claims;
mod connection;
mod connector;
mod fault;
mod housekeeping;
mod lease;
mod lost_leases;
mod migration_connection;
mod migrator;
mod operators;
mod pick;
mod scan_start;
mod schema;
mod settle_batch;
mod settlement;
mod statements;
mod store;
mod table;
mod values;
mod wake;

pub use self::{
    builder::PostgresStoreBuilder, check::PostgresReport, schema::SCHEMA_SQL, statements::COMPLETE_SQL,
    store::PostgresStore,
};
