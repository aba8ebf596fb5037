//! The embedded store that survives: one SQLite file, for every process on one machine.
//!
//! Concurrent questions are gathered into batches. A batch reads the rows of its keys, decides every question in turn, and writes
//! the rows that changed: one statement, one transaction, one flush to disk for all. A row is written on condition that it still
//! has the version that was read, so nothing has to be locked in between. What needs no write, a duplicate above all, is answered
//! by reading, which in WAL mode waits for nobody.
//!
//! ```text
//! store ─┬─ group ── writer   one batch at a time, on a connection of the store's own
//!        │             ├───── plan        questions + rows → answers + changed rows
//!        │             │        ├─ record what one claim, renewal, completion or release makes of one row
//!        │             │        └─ queued the same, and acceptance, retry and burial, for a row of the inbox
//!        │             └───── statements  the texts: read, write, keep, purge, complete
//! inbox ─┼─ leases ─ writer   what is due: looked for by the reader, picked and taken in one transaction
//!        │             └───── picking     which events those are, by their kinds and the order of time
//!        ├─ operating, writer what operators change, a thousand at a time
//!        └─ viewing, reader   what they look at, on a second connection; on a third what may take long
//! ```
//!
//! # The inbox
//!
//! An event of the [inbox](crate::queue) is a row of the same table, with a number in the order of arrival; one that a worker has
//! leased is a running claim like any other. What is large, or of no interest to claims, is elsewhere:
//!
//! | table | holds |
//! |---|---|
//! | `webhook_events` | a row per event: claim, state, when it is due, its order, its log of failed attempts |
//! | `webhook_events_parcels` | head and body of every event of the inbox, written with it in one transaction |
//! | `webhook_events_applied` | the highest sequence that was completed of each resource, for good |
//! | `webhook_events_gone` | the highest arrival among the events that are gone, so that no number is given twice |
//!
//! Triggers keep them in step, whoever changes a row: a parcel goes with its event, a completion is noted down as applied, even
//! one in a handler's transaction, and an event that ends lets the next of its order go on.
//!
//! | state | of the inbox | inline |
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
//! let layer = WebhookLayer::new(scheme::stripe(secret)?, store);
//! # Ok(())
//! # }
//! ```

mod builder;
mod connection;
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

pub use self::{builder::SqliteStoreBuilder, statements::COMPLETE_SQL, store::SqliteStore};
