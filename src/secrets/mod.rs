//! The secrets that deliveries are verified with.
//!
//! A scheme takes one secret, several that rotate, or a lookup per tenant. The rotating set can be replaced while
//! requests are running, and a secret may carry the time at which it expires:
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tower_webhook::scheme::{self, Scheme};
//! use tower_webhook::secrets::Secret;
//!
//! let scheme = scheme::stripe("whsec_old")?;
//! let secrets = scheme.secrets().clone(); // a handle for the code that rotates them
//!
//! let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
//! secrets.replace([
//!     Secret::new("whsec_new")?.label("2026-11"),
//!     Secret::new("whsec_old")?.label("2026-05").expires_at(tomorrow),
//! ])?;
//! # Ok::<(), tower_webhook::ConfigError>(())
//! ```

mod key;
mod optional;
mod secret;
#[allow(clippy::module_inception, reason = "the secrets of a scheme are what this module is about")]
mod secrets;
mod set;
mod tenant_cache;
mod tenants;

pub use self::{
    key::{Algorithm, Key},
    secret::Secret,
    secrets::{IntoSecrets, Secrets},
    set::SecretSet,
    tenants::TenantSecrets,
};
pub(crate) use self::{
    key::{Mac, Signature, Tag},
    secrets::Found,
    set::{Lookup, Prepared},
};
