//! Which event a delivery carries: where its id and its type are.
//!
//! The id decides what counts as a duplicate, so it is chosen explicitly, and every [`IdSource`] says whether the
//! signature covers it. An id that is not signed is no protection from replays: whoever captured a delivery can send it
//! again under another id.
//!
//! ```
//! use tower_webhook::identity::IdSource;
//!
//! assert!(IdSource::json("event.id")?.is_authenticated());
//! assert!(IdSource::body_digest().is_authenticated());
//! assert!(!IdSource::unsigned_header("x-github-delivery")?.is_authenticated());
//! # Ok::<(), tower_webhook::ConfigError>(())
//! ```

mod envelope;
mod json;
mod open;
mod path;
mod read;
mod run;
mod source;

pub(crate) use self::read::identify;
pub use self::source::{IdSource, TypeSource};
