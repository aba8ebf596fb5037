//! The store for many instances and for handlers that keep their data in Postgres: one table, durable, exact.
//!
//! Every claim, renewal, completion and release is committed before it is answered, as durably as the server's
//! `synchronous_commit` says. Concurrent ones share a statement, a commit and a flush to disk: while one batch is under way
//! the next one gathers, and nothing waits for a timer. Claims have two connections of their own, and everything that settles
//! them has one, made with the pool's options but not taken from the pool: three in all for each store, however
//! busy it is. The pool itself serves [`migrate`](PostgresStore::migrate) and [`purge`](PostgresStore::purge).
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
//! to stays: it is an event whose outcome nobody knows.
//!
//! # What it needs
//!
//! PostgreSQL 14 or later, and sessions: a pooler in transaction mode between this store and the server does not do. What the
//! pool sets up per connection (`after_connect`) the connections of this store do not have: name the schema with
//! [`table`](PostgresStoreBuilder::table), or set the search path in the connect options.

mod bell;
mod bid;
mod builder;
mod claims;
mod ear;
mod fault;
mod held_up;
mod inbox;
mod lane;
mod leases;
mod operators;
mod parcel;
mod promotion;
mod purge;
mod schema;
mod settle;
mod settles;
mod store;
mod table;
mod text;

pub use self::{
    builder::PostgresStoreBuilder,
    schema::{COMPLETE_SQL, SCHEMA_SQL},
    store::PostgresStore,
};
