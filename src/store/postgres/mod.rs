// Read in the order of a delivery: `builder` and `store`, then `claims` and `claim_item`, `settle_batch` and
// `settlement`. The queue is in `wake`, `lease`, `pick`, `scan_start`, `lost_leases`, `backlog` and `operators`; the
// table in `migrator`, `schema` and `housekeeping`; the check at start-up in `check`. All of them use `connection`,
// `connector`, `fault`, `statements`, `table` and `values`.

//! The store for many instances and for handlers that keep their data in Postgres: one table, durable, exact.
//!
//! Every claim, renewal, completion and release is committed before it is answered, as durably as the server's
//! `synchronous_commit` says. Concurrent calls share a statement, a commit and a flush to disk: while one batch is
//! under way the next one gathers, and no call waits for a timer.
//!
//! No statement of the store waits for a row that another transaction holds. A handler can therefore put its completion
//! into its own transaction. The rows that it holds count as in flight until it ends.
//!
//! Leases and retentions are counted on the server's clock. The clocks of the instances do not matter.
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
//! [`SCHEMA_SQL`] makes the default table. [`PostgresStore::schema_sql`] is the same under the configured name, for
//! teams that run their own migrations. Rows are kept until their retention is over, and deleted in small batches some
//! time later. A released claim is kept for a day, so that attempts are counted. A row whose claim has lapsed stays
//! until the event is delivered again: its outcome is not known. A role that did not create the table needs `SELECT`,
//! `INSERT`, `UPDATE` and `DELETE` on it and, for the inbox, `USAGE` on its sequence.
//! [`migrate`](PostgresStore::migrate) needs no more than that on a table that is complete.
//!
//! # The inbox
//!
//! An event that is [enqueued](crate::queue::Queue::enqueue) is a row of the same table, with the request in it, and
//! committed before the sender is answered. A worker's lease is a running claim like any other, so
//! [`complete_in`](crate::WebhookEvent::complete_in) works from a worker, too. Rows that are claimed inline have none
//! of the inbox's columns, and are in none of its indexes.
//!
//! - Leases are taken `FOR UPDATE SKIP LOCKED`, in the order of an index of due events: their cost does not depend on
//!   how many events wait. A worker that takes some [endpoints](crate::Worker::endpoints) only, or that limits how many
//!   events of a kind run, looks at a few events in that order. If it can lease few of them, it goes from kind to kind
//!   in another index: events that it leaves out cost nothing, however many they are. A statement looks at about 1,000
//!   kinds, at least 16 per endpoint, and the next lease continues with the others. Such a lease runs two to seven
//!   statements in place of one, and more if other workers lease the picked events first.
//! - While a transaction is open for long, a backup for example, events that have ended since it began stay in the
//!   indexes. Once they make a scan of the index of due events take time, leases start at the first event that is still
//!   to be run, or two seconds before now. Events that another instance puts back before that place are found by a scan
//!   that is repeated after a second, or after twenty times as long as it takes. An event that stays due and that no
//!   worker leases keeps leases from starting later.
//! - A lease that took effect, and whose answer did not come in time, is released as soon as the server answers.
//! - A lease carries 4 MiB of events, or one event.
//! - A lease need not be on disk. If the server crashes it may forget the last ones: the events are leased again, and
//!   the tokens of the forgotten leases can complete nothing.
//! - Workers of all instances are woken by `NOTIFY`, sent after the commit and from a connection of its own: sent in
//!   the transaction, it would make all commits of the database wait for each other. If one is lost, its event waits
//!   for a worker's [poll](crate::Worker::poll_every).
//! - A unique index lets one event of an [order](crate::queue::Order) run at a time. The events behind it are not in
//!   the index of due events until it is their turn. Orders longer than 1,024 bytes are written as their beginning and
//!   their hash.
//! - Completed events keep their bodies as long as their records, or [for a shorter
//!   time](PostgresStoreBuilder::keep_completed_bodies).
//! - Dead letters are kept until an operator decides. Of an order with sequences, the highest completed one is kept for
//!   good: once the last event of the order is deleted, in a small row in the state `applied`.
//!
//! # Connections
//!
//! The store makes connections with the pool's options, but does not take them from the pool. It makes them when they
//! are first needed, and as many however busy it is:
//!
//! | for | connections | at most |
//! |---|---|---|
//! | claims and enqueued events | 2 | 6 |
//! | renewals, completions and other ends of claims | 1 | 3 |
//! | waking workers, where events are enqueued or put back | 1 | 1 |
//! | leases, where a worker runs | 1 | 1 |
//! | searches for lost leases, and scans behind an old snapshot, where a worker runs and these occur | 2 | 2 |
//! | counting waiting and looking up known events, where a receiver [limits] them | 1 | 1 |
//! | being woken, where a worker runs | 1 | 1 |
//!
//! [limits]: crate::inbox::Inbox::max_waiting_events
//!
//! There are more than usual while the server leaves claims or settlements unanswered. Such a statement keeps its
//! connection past its [deadline](PostgresStoreBuilder::deadline), so that its outcome becomes known, and the next
//! statement has another connection, up to the number in the last column. Further calls then fail at their deadline,
//! and are not sent. Of each connection in the middle column, the oldest such statement is given up after a minute, and
//! another one each minute. Its session on the server ends then, unless it waits to commit, as for a synchronous
//! replica that is away: those sessions stay until the replica is back, or the server does without it.
//!
//! The pool itself serves [`migrate`](PostgresStore::migrate), [`purge`](PostgresStore::purge), and operators.
//! [`check`](PostgresStore::check) opens two more connections for a moment, and two past the pooler.
//!
//! # Poolers
//!
//! A pooler in session mode needs no configuration. One in transaction mode (PgBouncer with `pool_mode = transaction`,
//! Supavisor on port 6543, RDS Proxy) gives every transaction another session. Tell the store about it with
//! [`pooled`](PostgresStoreBuilder::pooled):
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
//! | round trips of claims, completions or leases | 1 | 4: `BEGIN` and settings, statement, parameters, `COMMIT` | 4 |
//! | round trips of [`complete_in`](crate::WebhookEvent::complete_in) | 1, and another one the first time | 2 | 2 |
//! | workers are woken by other instances | `LISTEN` | no: they [poll](crate::Worker::poll_every) | `LISTEN` |
//! | a missing index of a table above 16 MiB | built `CONCURRENTLY` | error of `migrate` | built `CONCURRENTLY` |
//!
//! Concurrent calls share a batch as always, so the round trips cost latency more than throughput. Handlers that use
//! such a pool themselves keep to the same rules: every query in a transaction, and
//! [`persistent(false)`](sqlx::query::Query::persistent), unless the pooler knows prepared statements. RDS Proxy may
//! pin a session to each of the store's connections, since it does so for `SET` of any kind: that breaks nothing, and
//! those sessions are not shared.
//!
//! # Requirements
//!
//! PostgreSQL 14 or later. The pool's `after_connect` does not set up the connections of the store: name the schema
//! with [`table`](PostgresStoreBuilder::table), or set the search path in the connect options.

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
