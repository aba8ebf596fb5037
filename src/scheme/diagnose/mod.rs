//! Why a delivery does not verify: [`diagnose`](fn@diagnose) tries the usual accidents, one after the other.
//!
//! `diagnose` is the search. It tries the secrets of `suspects`, the bodies of `bodies` and the URLs of `urls`, and
//! returns a `diagnosis`: a list of what is in `finding`.

mod bodies;
#[allow(clippy::module_inception, reason = "the search is what this module is about")]
mod diagnose;
mod diagnosis;
mod finding;
mod json;
mod json_form;
mod keys;
mod suspects;
mod urls;

pub(crate) use self::diagnose::{Effort, Refused, investigate};
pub use self::{
    diagnose::diagnose,
    diagnosis::Diagnosis,
    finding::{BodyChange, Finding, SecretSlip, UrlPart},
    json_form::{JsonEscapes, JsonForm, JsonLayout},
    suspects::{Suspect, Suspects},
};
