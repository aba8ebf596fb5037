//! Which event a delivery carries: where its id and its type are.
//!
//! The id decides what counts as a duplicate, so it is chosen explicitly, and every [`IdSource`] says whether the
//! signature covers it. An id that is not signed is no protection from replays: whoever captured a delivery can send it
//! again under another id. Where senders put their ids in more than one place, [`IdSource::or`] tries them in turn.
//!
//! Under a scheme that does not sign the whole body (Mailgun, Adyen's payments, a form of Twilio) only the id that the scheme
//! itself took out of what is signed, [`IdSource::signed`], is authenticated; under a token, none is.
//!
//! ```
//! use tower_webhook::identity::IdSource;
//!
//! assert!(IdSource::json("event.id")?.is_authenticated());
//! assert!(IdSource::body_digest().is_authenticated());
//! assert!(!IdSource::unsigned_header("x-github-delivery")?.is_authenticated());
//! # Ok::<(), tower_webhook::ConfigError>(())
//! ```

mod id_source;
mod identify;
pub(crate) mod json_body;
mod json_scanner;
mod type_source;
mod value_source;

pub use self::{id_source::IdSource, type_source::TypeSource};
pub(crate) use self::{
    identify::{Identity, identify, typed_digest},
    value_source::{Coverage, json_path},
};
