use crate::error::ConfigError;
use crate::scheme::Template;
use crate::secrets::{Algorithm, IntoSecrets};

/// Vercel: `x-vercel-signature: {hex}`, HMAC-SHA1 of the body.
///
/// **Id:** JSON `id`, signed.
///
/// # Errors
/// When a secret cannot be one.
pub fn vercel(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("vercel").signature("x-vercel-signature", "{hex}").algorithm(Algorithm::HmacSha1).build(secrets)
}
