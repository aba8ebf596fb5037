#![cfg_attr(docsrs, feature(doc_cfg))]
// Where the links and the picture of the README are in rustdoc: see `guide`.
#![doc = include_str!("guide_links.md")]
#![doc = include_str!("../README.md")]

pub mod clock;
pub mod enlist;
mod error;
mod event;
#[cfg(feature = "axum")]
mod extract;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod handler;
mod head;
pub mod identity;
pub mod inbox;
mod key;
mod lock;
mod machine;
mod outcome;
mod random;
mod receiver;
pub mod rejection;
mod retry;
mod route;
pub mod scheme;
pub mod secrets;
pub mod store;
mod telemetry;
#[cfg(feature = "testing")]
pub mod testing;
mod throttle;
pub mod worker;

#[cfg(feature = "axum")]
pub use self::extract::{EventData, EventRejection};
pub use self::{
    error::{ConfigError, ConfigErrorKind},
    event::{Untyped, WebhookEvent},
    handler::HandlerError,
    key::EventKey,
    machine::{DrainHandle, Drained},
    outcome::Outcome,
    receiver::{AnswerBody, ResponseFuture, WebhookLayer, WebhookService},
    worker::Worker,
};

#[doc(inline)]
pub use self::store::queue;

// The versions that the stores are built with: another version's pool is another type.
#[cfg(feature = "redis")]
pub use deadpool_redis;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use sqlx;

// The code in it must compile, though it is not part of these docs.
#[cfg(doctest)]
#[doc = include_str!("../CONTRIBUTING.md")]
mod contributing {}
