//! Exactly-once effect: the completion inside of the handler's own transaction.
//!
//! With the store in the handler's database, effect and completion are committed together, or neither is. A crash in between,
//! a second delivery, a zombie that wakes up late: none of them doubles the effect, and none of them loses it.
//!
#![cfg_attr(feature = "postgres", doc = "```no_run")]
#![cfg_attr(not(feature = "postgres"), doc = "```ignore")]
//! use axum::{Router, extract::State, routing::post};
//! use sqlx::PgPool;
//! use tower_webhook::{HandlerError, WebhookEvent, WebhookLayer, scheme, store::PostgresStore};
//!
//! async fn on_event(State(pool): State<PgPool>, event: WebhookEvent) -> Result<(), HandlerError> {
//!     let mut tx = pool.begin().await?;
//!     // First thing: it fails for a zombie before anything is done, and fences until the commit.
//!     event.complete_in(&mut *tx).await?;
//!     sqlx::query("UPDATE accounts SET balance = balance + 1").execute(&mut *tx).await?;
//!     tx.commit().await?;
//!     Ok(())
//! }
//!
//! # async fn app(pool: PgPool) -> Result<Router, Box<dyn std::error::Error>> {
//! let store = PostgresStore::new(pool.clone());
//! let app = Router::new()
//!     .route("/webhooks", post(on_event))
//!     .layer(WebhookLayer::new(scheme::stripe("whsec_secret")?, store))
//!     .with_state(pool);
//! # Ok(app)
//! # }
//! ```
//!
//! It only *enlists*. Whatever the handler returns, the layer asks the store what came of the transaction:
//!
//! | the record is | because | the sender gets |
//! |---|---|---|
//! | completed under this delivery's token | the transaction was committed | the handler's answer, also if that is an error: its retry gets 200 |
//! | still running under it | rolled back, or nobody called `commit` | the handler's answer, but 500 in place of a success; the retry runs again |
//! | locked | the transaction is still open somewhere | 503; the lease ends by itself |
//! | another delivery's | this one is a zombie | 503 |
//!
//! After a rollback it may be called again, in a new transaction. From the first call on the lease is not renewed any more: a
//! renewal would collide with the transaction. The row's lock takes its place.
//!
//! A SQLite handler begins with `pool.begin_with("BEGIN IMMEDIATE")`, so that it waits for the lock at its beginning and not in
//! the middle, and leaves `synchronous` at `FULL`: it is the handler's connection that makes the commit durable. Effects outside of the database go into an outbox table in the same transaction.
//!
//! Other drivers run the statement themselves: [`WebhookEvent::enlist`](crate::WebhookEvent::enlist).

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod connection;
mod error;
mod event;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use self::connection::Connection;
pub use self::{
    error::{EnlistError, EnlistErrorKind},
    event::CompletionStatement,
};
