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

mod coverage;
mod digest;
pub(crate) mod envelope;
mod id_source;
mod json;
mod open;
mod path;
mod place;
mod read;
mod run;
mod type_source;

pub(crate) use self::{
    coverage::Coverage,
    digest::typed_digest,
    place::json_path,
    read::{Identity, identify},
};
pub use self::{id_source::IdSource, type_source::TypeSource};
