//! The identity of an event: where its id and its type are.
//!
//! The id decides which deliveries are duplicates, so its source is configured explicitly, and every [`IdSource`] says
//! whether the signature covers it. An unsigned id does not protect from replays: an attacker can send a captured
//! delivery again under another id. If a sender puts its ids in more than one place, [`IdSource::or`] tries them in
//! order.
//!
//! If a scheme does not sign the whole body (Mailgun, Adyen's payments, a form of Twilio), only the id that the scheme
//! itself extracts from the signed content, [`IdSource::signed`], is authenticated. With a token, no id is.
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
