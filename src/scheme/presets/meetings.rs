use bytes::Bytes;
use http::Response;

use super::timestamped::list;
use super::{DAY, HOUR, MINUTE, seconds};
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::scheme::Template;
use crate::scheme::handshakes::{is_word, json, texts};
use crate::secrets::{IntoSecrets, Key};

/// Calendly: `Calendly-Webhook-Signature: t={timestamp},v1={hex}`, HMAC-SHA256 of `{timestamp}.{body}`.
///
/// **Id:** the digest of the body, which tells when the event was created. **Timestamps:** three minutes. **Retries:** over a day;
/// Calendly waits 15 s.
///
/// # Errors
/// When a secret cannot be one.
pub fn calendly(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    list("calendly", "calendly-webhook-signature")
        .own_headers(["calendly-*"])
        .tolerance(3 * MINUTE)
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::json("event")?)
        .sender_timeout(seconds(15))
        .retry_window(DAY)
        .build(secrets)
}

/// Typeform: `Typeform-Signature: sha256={base64}`, HMAC-SHA256 of the body: base64, whatever the prefix suggests.
///
/// **Id:** JSON `event_id`, signed. **Reported:** retries after 5, 10 and 20 minutes, and after 1, 2, 3 and 4
/// hours; Typeform waits 30 s.
///
/// # Errors
/// When a secret cannot be one.
pub fn typeform(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("typeform")
        .signature("typeform-signature", "sha256={base64}")
        .own_headers(["typeform-*"])
        .id_source(IdSource::json("event_id")?)
        .type_source(TypeSource::json("event_type")?)
        .sender_timeout(seconds(30))
        .retry_window(10 * HOUR + 35 * MINUTE)
        .build(secrets)
}

/// Zoom: `x-zm-signature: v0={hex}`, HMAC-SHA256 of `v0:{timestamp}:{body}`, with `x-zm-request-timestamp`. The
/// `endpoint.url_validation` is answered here, if it is signed and its token is one plain word.
///
/// **Id:** the digest of the body, which has `event_ts` in it. **Retries:** after 5, 20 and 60 minutes; Zoom waits 3 s. Zoom does
/// not say that it signs a retry anew. One that it did not is refused, being older than the five minutes of the tolerance; if you
/// see such, widen it: `zoom(secret)?.tolerance(Duration::from_secs(2 * 3600))`.
///
/// # Errors
/// When a secret cannot be one.
pub fn zoom(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("zoom")
        .signature("x-zm-signature", "v0={hex}")
        .timestamp("x-zm-request-timestamp")
        .own_headers(["x-zm-*"])
        .signed("v0:{timestamp}:{body}")
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::json("event")?)
        .sender_timeout(seconds(3))
        .retry_window(85 * MINUTE)
        .handshake(url_validation)
        .build(secrets)
}

/// Zoom's `endpoint.url_validation`: the token comes back with its MAC.
fn url_validation(body: &[u8], key: &Key) -> Option<Response<Bytes>> {
    let [event, token] = texts(body, ["event", "payload.plainToken"])?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if event != "endpoint.url_validation" || !is_word(&token) || !token.bytes().all(is_plain) {
        return None;
    }
    let encrypted = hex::encode(key.sign(&[token.as_bytes()]).ok()?);
    Some(json(format!(r#"{{"plainToken":"{token}","encryptedToken":"{encrypted}"}}"#)))
}
