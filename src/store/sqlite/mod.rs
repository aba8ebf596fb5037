//! The embedded store that survives: one SQLite file, for every process on one machine.
//!
//! Concurrent questions are gathered into batches. A batch reads the rows of its keys, decides every question in turn, and writes
//! the rows that changed: one statement, one transaction, one flush to disk for all. A row is written on condition that it still
//! has the version that was read, so nothing has to be locked in between. What needs no write, a duplicate above all, is answered
//! by reading, which in WAL mode waits for nobody.
//!
//! ```text
//! store ── group ── writer   one batch at a time, on a connection of the store's own
//!                     ├───── plan        questions + rows → answers + changed rows
//!                     │        └─ record what one claim, renewal, completion or release makes of one row
//!                     └───── statements  the texts: read, write, purge, complete
//! ```
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
mod connect;
mod fault;
mod inbox;
mod leasing;
mod leaving;
mod operating;
mod plan;
mod question;
mod queued;
mod reader;
mod record;
mod schema;
mod statements;
mod store;
mod table;
mod time;
mod viewing;
mod writer;

pub use self::{builder::SqliteStoreBuilder, statements::COMPLETE_SQL, store::SqliteStore};
