//! How providers sign.
//!
//! A [`Scheme`] reads the [`Proof`] that a delivery carries. The layer then feeds the body to one MAC per active
//! secret while it arrives, and compares every signature with every MAC in constant time.
//!
//! Most providers have a function here that creates their scheme, such as [`stripe`], [`github`] or
//! [`standard_webhooks`]. Its docs say what is signed, where the id is taken from, whether it is signed, and how the
//! provider retries. Facts are as of November 2026, from the providers' documentation or SDKs. Facts after
//! **Reported:** come from third parties; they may be wrong, or change. No signature check depends on them.
//!
//! Any other scheme can be described in the same way:
//!
//! ```
//! use tower_webhook::identity::{IdSource, TypeSource};
//! use tower_webhook::rejection::RejectionKind;
//! use tower_webhook::scheme::{self, Head, Outgoing, Scheme, Template};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let acme = Template::builder("acme")
//!     .signature("x-acme-signature", "v1={hex}")
//!     .timestamp("x-acme-timestamp")
//!     .signed("v1:{timestamp}:{body}")
//!     .id_source(IdSource::json("event.id")?)
//!     .type_source(TypeSource::header("x-acme-event")?)
//!     .build("a secret")?;
//!
//! let mut message = Outgoing::new("{}");
//! acme.sign(&mut message, &acme.secrets().current().unwrap())?;
//! let (parts, body) = message.request.into_parts();
//!
//! let head = Head::new(&parts, message.signed_at);
//! assert!(scheme::verify(&acme, &head, &body).await.is_ok());
//! let refused = scheme::verify(&acme, &head, b"[]").await.unwrap_err();
//! assert_eq!(refused.kind(), RejectionKind::SignatureMismatch);
//! # Ok::<(), tower_webhook::ConfigError>(())
//! # }).unwrap();
//! ```
//!
//! A scheme that no template describes is a closure, [`Custom`], or an implementation of the trait.
//!
//! Why a delivery does not verify, [`diagnose`](fn@diagnose) finds out.
//!
//! Where the providers' own SDKs disagree, the schemes here follow the same rules:
//!
//! - Hex may be in either case; base64 has one spelling. The base64 of a secret may lack its padding.
//! - A timestamp consists of digits without a sign or a leading zero, and occurs once. It may be neither too old nor
//!   too far ahead. A tolerance of zero means the same second; [`Tolerance::InsecureUnchecked`] disables the check.
//! - A prefix such as `sha256=` or `v1,` is required. In a list, elements of other versions, and those that cannot be
//!   decoded, are skipped.
//! - A header of the proof that occurs twice is refused, even if both values are equal.
//! - A signed id that contains a separator followed by a number like a timestamp is refused: the signed text could be
//!   split in two ways.

mod body;
mod custom;
mod diagnose;
mod encoding;
mod presets;
mod profile;
mod proof;
mod public_url;
#[allow(clippy::module_inception, reason = "the trait is what this module is about")]
mod scheme;
mod template;
mod timestamp;
mod verifying;

pub(crate) use self::diagnose::{Effort, Refused, investigate};
pub use self::presets::*;
pub(crate) use self::verifying::Verifying;
pub use self::{
    custom::Custom,
    diagnose::{
        BodyChange, Diagnosis, Finding, JsonEscapes, JsonForm, JsonLayout, SecretSlip, Suspect, Suspects, UrlPart,
        diagnose,
    },
    encoding::Encoding,
    profile::Profile,
    proof::Proof,
    scheme::{Outgoing, Scheme},
    template::{Template, TemplateBuilder},
    timestamp::Tolerance,
    verifying::{Verified, verify},
};
pub use crate::head::{Head, HeaderPattern};
pub use crate::secrets::Algorithm;
