//! The secrets that deliveries are verified with.
//!
//! A scheme takes one secret, several that rotate, or a lookup per tenant. The rotating set can be replaced while
//! requests are running, and a secret may carry the time at which it stops counting:
//!
//! ```
//! use std::time::{Duration, SystemTime};
//! use tower_webhook::scheme::{self, Scheme};
//! use tower_webhook::secrets::Secret;
//!
//! let scheme = scheme::stripe("whsec_old")?;
//! let secrets = scheme.secrets().clone(); // a handle, for whoever rotates
//!
//! let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
//! secrets.replace([
//!     Secret::new("whsec_new")?.label("2026-11"),
//!     Secret::new("whsec_old")?.label("2026-05").expires_at(tomorrow),
//! ])?;
//! # Ok::<(), tower_webhook::ConfigError>(())
//! ```

mod algorithm;
mod input;
mod key;
mod lookup_slots;
mod secret;
mod set;
mod tenant_cache;
mod tenant_keys;
mod tenants;

pub use self::{
    algorithm::Algorithm,
    input::{IntoSecrets, SecretsInput},
    key::Key,
    secret::Secret,
    set::{SecretSet, Secrets},
    tenants::TenantSecrets,
};
pub(crate) use self::{
    key::{Mac, Signature, Tag},
    set::{Found, Lookup, Prepared, Snapshot},
};
