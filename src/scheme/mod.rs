//! How providers sign.
//!
//! A [`Scheme`] reads what the headers claim into a [`Proof`]; the layer then feeds the body to one MAC per active secret
//! while it arrives, and compares every signature with every tag in constant time. [`Timestamped`] is the default
//! `t=…,v1=…` form. Another scheme is one method:
//!
//! ```
//! use http::{HeaderMap, HeaderValue};
//! use tower_webhook::rejection::{Rejection, RejectionKind};
//! use tower_webhook::scheme::{Head, Outgoing, Proof, Scheme};
//! use tower_webhook::secrets::{IntoSecrets, MacKey, SecretSet, Secrets};
//! use tower_webhook::ConfigError;
//!
//! /// `X-Acme-Signature: <hex>`, HMAC-SHA256 over the body.
//! struct Acme(Secrets);
//!
//! impl Acme {
//!     fn new(secrets: impl IntoSecrets) -> Result<Self, ConfigError> {
//!         Secrets::new(secrets, |text| MacKey::hmac_sha256(text.as_bytes())).map(Acme)
//!     }
//! }
//!
//! impl Scheme for Acme {
//!     fn name(&self) -> &str {
//!         "acme"
//!     }
//!     fn secrets(&self) -> &Secrets {
//!         &self.0
//!     }
//!     fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
//!         let mut proof = Proof::new();
//!         proof.add_hex(head.proof_header("x-acme-signature")?);
//!         Ok(proof)
//!     }
//!     fn sign(&self, message: &Outgoing<'_>, secrets: &SecretSet) -> Result<HeaderMap, ConfigError> {
//!         let (_, key) = secrets.active(message.timestamp).next().expect("an active secret");
//!         let tag = hex::encode(key.tag(&[message.body]));
//!         Ok(HeaderMap::from_iter([("x-acme-signature".parse().unwrap(), tag.parse().unwrap())]))
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let acme = Acme::new("a secret")?;
//! let set = acme.secrets().current().unwrap();
//! let message = Outgoing::new(b"{}");
//! let mut request = http::Request::new(());
//! *request.headers_mut() = acme.sign(&message, &set)?;
//! let (parts, ()) = request.into_parts();
//!
//! let head = Head::new(&parts, message.timestamp);
//! assert!(tower_webhook::scheme::verify(&acme, &head, b"{}").await.is_ok());
//! let refused = tower_webhook::scheme::verify(&acme, &head, b"[]").await.unwrap_err();
//! assert_eq!(refused.kind(), RejectionKind::SignatureMismatch);
//! # Ok::<(), ConfigError>(())
//! # }).unwrap();
//! ```

mod hex;
mod profile;
mod proof;
mod short;
mod timestamped;
mod tolerance;
mod verbs;
mod verifying;

pub(crate) use self::verifying::Verifying;
pub use self::{
    profile::Profile,
    proof::Proof,
    timestamped::Timestamped,
    tolerance::Tolerance,
    verbs::{Outgoing, Scheme},
    verifying::{Verified, verify},
};
pub use crate::head::Head;
