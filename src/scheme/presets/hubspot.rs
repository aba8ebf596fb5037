use super::{DAY, seconds};
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::scheme::{Template, TemplateBuilder};
use crate::secrets::{Algorithm, IntoSecrets};

/// HubSpot v3: `X-HubSpot-Signature-v3: {base64}`, HMAC-SHA256 of `{method}{url}{body}{timestamp}`, with the milliseconds of
/// `X-HubSpot-Request-Timestamp`. `url` is the endpoint's as HubSpot has it.
///
/// **Id:** the digest of the body. A body is a batch, and its events count their attempts, so a retry is another body and runs
/// again: apply each event so that a second time does nothing. **Reported:** 10 retries over 24 hours; HubSpot waits 5 s.
///
/// # Errors
/// When a secret cannot be one, or the URL is none.
pub fn hubspot(secrets: impl IntoSecrets, url: &str) -> Result<Template, ConfigError> {
    batches("hubspot")
        .signature("x-hubspot-signature-v3", "{base64}")
        .timestamp("x-hubspot-request-timestamp")
        .in_millis()
        .signed("{method}{url}{body}{timestamp}")
        .url(url)
        .url_unescaped(":/?@!$'()*,;")
        .build(secrets)
}

/// HubSpot v2: `X-HubSpot-Signature: {hex}`, SHA-256 of the secret and `{method}{url}{body}`, which is no HMAC. Prefer
/// [`hubspot`]: HubSpot sends its signature along, and only that one has a timestamp.
///
/// # Errors
/// When a secret cannot be one, or the URL is none.
pub fn hubspot_v2(secrets: impl IntoSecrets, url: &str) -> Result<Template, ConfigError> {
    batches("hubspot-v2")
        .signature("x-hubspot-signature", "{hex}")
        .algorithm(Algorithm::KeyedSha256)
        .signed("{method}{url}{body}")
        .url(url)
        .build(secrets)
}

/// HubSpot v1: `X-HubSpot-Signature: {hex}`, SHA-256 of the secret and the body, which is no HMAC. Prefer [`hubspot`].
///
/// # Errors
/// When a secret cannot be one.
pub fn hubspot_v1(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    batches("hubspot-v1").signature("x-hubspot-signature", "{hex}").algorithm(Algorithm::KeyedSha256).build(secrets)
}

/// What the versions have in common.
fn batches(name: &'static str) -> TemplateBuilder {
    Template::builder(name)
        .json_body()
        .own_headers(["x-hubspot-*"])
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::none())
        .sender_timeout(seconds(5))
        .retry_window(DAY)
}
