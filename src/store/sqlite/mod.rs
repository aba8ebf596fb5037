//! The embedded store that survives: one SQLite file, for every process on one machine.
//!
//! Concurrent calls are gathered into batches. A batch reads the rows of its keys, decides every call in turn, and
//! writes the rows that changed: one statement, one transaction, one flush to disk for all. A row is written on
//! condition that it still has the version that was read, so that no lock is held in between. A call that needs no
//! write, a duplicate above all, is answered by reading, which in WAL mode waits for no writer.
//!
//! ```text
//! store ─┬─ writer ─┬─ plan        a batch of operations + rows → replies + changed rows
//!        │          │    └─ record the row of one key, and what an operation makes of it by the rules of `store::record`
//!        │          └─ statements  the texts, from `statements.sql` and `schema.sql`
//! queue ─┼─ lease ─── pick         which due events a lease takes, by their kinds and the order of time
//!        └─ operators              queries and changes, a thousand events at a time
//! connection                       one that writes; one to look for due events; one for queries that may take long
//! ```
//!
//! # The queue
//!
//! An event of the [queue](crate::queue) is a row of the same table, with a number in the order of arrival; an event
//! that a worker has leased is a running claim like any other. Columns that are large, or of no interest to claims, are
//! in other tables:
//!
//! | table | holds |
//! |---|---|
//! | `webhook_events` | a row per event: claim, state, when it is due, its order, its log of failed attempts |
//! | `webhook_events_parcels` | head and body of every queued event, written with it in one transaction |
//! | `webhook_events_applied` | the highest sequence that was completed of each resource, for good |
//! | `webhook_events_gone` | the highest arrival among deleted events, so that no number is given twice |
//!
//! Triggers keep them in step, whichever program changes a row: a request is deleted with its event, a completion is
//! noted as applied, even one in a handler's transaction, and the end of an event makes the next one of its order
//! leasable.
//!
//! | state | in the queue | inline |
//! |---|---|---|
//! | `accepted` | waiting, until `due_at` on the boot clock | – |
//! | `running` | leased to a worker | claimed |
//! | `completed` | done, or discarded; kept for its retention | done; kept for its retention |
//! | `failed` | a dead letter; kept until an operator decides | given up; kept for its retention |
//! | `released` | – | free to take |
//!
//! ```no_run
//! use tower_webhook::{WebhookLayer, scheme};
//! use tower_webhook::store::SqliteStore;
//!
//! # async fn example(secret: &str) -> Result<(), Box<dyn std::error::Error>> {
//! let store = SqliteStore::open("/var/lib/receiver/webhooks.db").await?;
//! store.check().await?;
//! let layer = WebhookLayer::new(scheme::stripe(secret)?, store);
//! # Ok(())
//! # }
//! ```

mod builder;
mod check;
mod connection;
mod fault;
mod file_system;
mod lease;
mod operation;
mod operators;
mod pick;
mod plan;
mod queue;
mod record;
mod statements;
mod store;
mod table;
mod time;
mod writer;

pub use self::{builder::SqliteStoreBuilder, check::SqliteReport, statements::COMPLETE_SQL, store::SqliteStore};
