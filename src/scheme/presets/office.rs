use bytes::Bytes;
use http::{Response, StatusCode};

use super::common::{DAY, HOUR, MINUTE, empty_response, is_word, json_response, query_of_get, seconds, text_response};
use super::standard::timestamped_list;
use crate::error::ConfigError;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::identity::{IdSource, TypeSource};
use crate::rejection::Rejection;
use crate::scheme::body::{form_value, json_texts};
use crate::scheme::{Head, Template, TemplateBuilder};
use crate::secrets::{Algorithm, IntoSecrets, Key};

/// Calendly: `Calendly-Webhook-Signature: t={timestamp},v1={hex}`, HMAC-SHA256 of `{timestamp}.{body}`.
///
/// **Id:** the digest of the body, which contains the time of the event's creation. **Timestamps:** three minutes.
/// **Retries:** over a day; Calendly waits 15 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let calendly = scheme::calendly(std::env::var("CALENDLY_SIGNING_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn calendly(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    timestamped_list("calendly", "calendly-webhook-signature")
        .own_headers(["calendly-*"])
        .tolerance(3 * MINUTE)
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::json("event")?)
        .sender_timeout(seconds(15))
        .retry_window(DAY)
        .build(secrets)
}

/// Typeform: `Typeform-Signature: sha256={base64}`, HMAC-SHA256 of the body. The encoding is base64, though the prefix
/// suggests hex.
///
/// **Id:** JSON `event_id`, signed. **Reported:** retries after 5, 10 and 20 minutes, and after 1, 2, 3 and 4
/// hours; Typeform waits 30 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let typeform = scheme::typeform(std::env::var("TYPEFORM_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn typeform(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("typeform")
        .api_keys(&["tfp_"], "the secret that was given to the webhook, in the form's settings under Webhooks")
        .signature("typeform-signature", "sha256={base64}")
        .own_headers(["typeform-*"])
        .id_source(IdSource::json("event_id")?)
        .type_source(TypeSource::json("event_type")?)
        .sender_timeout(seconds(30))
        .retry_window(10 * HOUR + 35 * MINUTE)
        .build(secrets)
}

/// Zoom: `x-zm-signature: v0={hex}`, HMAC-SHA256 of `v0:{timestamp}:{body}`, with `x-zm-request-timestamp`. This scheme
/// answers the `endpoint.url_validation`, if it is signed and its token is one plain word.
///
/// **Id:** the digest of the body, which contains `event_ts`. **Retries:** after 5, 20 and 60 minutes; Zoom waits 3 s.
/// Zoom does not say that it signs a retry anew. A retry with the old signature is refused, since it is older than the
/// five minutes of the tolerance. If you see such retries, widen the tolerance:
/// `zoom(secret)?.tolerance(Duration::from_secs(2 * 3600))`.
///
/// ```no_run
/// use std::time::Duration;
/// use tower_webhook::scheme;
///
/// let zoom = scheme::zoom(std::env::var("ZOOM_SECRET_TOKEN")?)?.tolerance(Duration::from_secs(2 * 3600));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
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
        .handshake(answer_url_validation)
        .build(secrets)
}

/// Answers Zoom's `endpoint.url_validation` with the token and its MAC.
fn answer_url_validation(body: &[u8], key: &Key) -> Option<Response<Bytes>> {
    let [event, token] = json_texts(body, ["event", "payload.plainToken"])?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if event != "endpoint.url_validation" || !is_word(&token) || !token.bytes().all(is_plain) {
        return None;
    }
    let encrypted = hex::encode(key.sign(&[token.as_bytes()]).ok()?);
    Some(json_response(format!(r#"{{"plainToken":"{token}","encryptedToken":"{encrypted}"}}"#)))
}

/// HubSpot v3: `X-HubSpot-Signature-v3: {base64}`, HMAC-SHA256 of `{method}{url}{body}{timestamp}`, with the
/// milliseconds of `X-HubSpot-Request-Timestamp`. `url` is the endpoint's URL as configured at HubSpot.
///
/// **Id:** the digest of the body. A body is a batch, and its events count their attempts, so a retry is another body
/// and runs again: apply each event idempotently. **Reported:** 10 retries over 24 hours; HubSpot waits 5 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let hubspot = scheme::hubspot(std::env::var("HUBSPOT_CLIENT_SECRET")?, "https://example.com/webhooks/hubspot")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret or the URL is invalid.
pub fn hubspot(secrets: impl IntoSecrets, url: &str) -> Result<Template, ConfigError> {
    hubspot_template("hubspot")
        .signature("x-hubspot-signature-v3", "{base64}")
        .timestamp("x-hubspot-request-timestamp")
        .in_millis()
        .signed("{method}{url}{body}{timestamp}")
        .url(url)
        .url_unescaped(":/?@!$'()*,;")
        .build(secrets)
}

/// HubSpot v2: `X-HubSpot-Signature: {hex}`, SHA-256 of the secret and `{method}{url}{body}`, which is no HMAC. Prefer
/// [`hubspot`]: HubSpot sends the v3 signature along, and only that one has a timestamp.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let hubspot_v2 = scheme::hubspot_v2(std::env::var("HUBSPOT_CLIENT_SECRET")?, "https://example.com/webhooks/hubspot")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret or the URL is invalid.
pub fn hubspot_v2(secrets: impl IntoSecrets, url: &str) -> Result<Template, ConfigError> {
    hubspot_template("hubspot-v2")
        .signature("x-hubspot-signature", "{hex}")
        .algorithm(Algorithm::KeyedSha256)
        .signed("{method}{url}{body}")
        .url(url)
        .build(secrets)
}

/// HubSpot v1: `X-HubSpot-Signature: {hex}`, SHA-256 of the secret and the body, which is no HMAC. Prefer [`hubspot`].
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let hubspot_v1 = scheme::hubspot_v1(std::env::var("HUBSPOT_CLIENT_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn hubspot_v1(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    hubspot_template("hubspot-v1")
        .signature("x-hubspot-signature", "{hex}")
        .algorithm(Algorithm::KeyedSha256)
        .build(secrets)
}

/// The parts that all versions share.
fn hubspot_template(name: &'static str) -> TemplateBuilder {
    Template::builder(name)
        .api_keys(&["pat-"], "the app's client secret, from its settings under Auth")
        .json_body()
        .own_headers(["x-hubspot-*"])
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::none())
        .sender_timeout(seconds(5))
        .retry_window(DAY)
}

/// Xero: `x-xero-signature: {base64}`, HMAC-SHA256 of the body under the webhook key's text. This scheme answers the
/// intent to receive: 200 if its signature is right, 401 without a body if not.
///
/// **Id:** the digest of the body, which contains `entropy`. If that changes with a retry, the retry runs again.
/// **Retries:** over 24 hours; Xero waits 5 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let xero = scheme::xero(std::env::var("XERO_WEBHOOKS_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn xero(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("xero")
        .signature("x-xero-signature", "{base64}")
        .own_headers(["x-xero-*"])
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::none())
        .sender_timeout(seconds(5))
        .retry_window(DAY)
        .handshake(answer_intent_to_receive)
        .build(secrets)
}

/// Answers Xero's intent to receive: a signed delivery without events.
fn answer_intent_to_receive(body: &[u8], _: &Key) -> Option<Response<Bytes>> {
    let [events] = json_body::read(body, [&JsonPath::key("events")]).ok()?;
    let Field::Other(events) = events else { return None };
    let none = json_body::elements(events)?.next().is_none();
    none.then(|| empty_response(StatusCode::OK))
}

/// Dropbox: `X-Dropbox-Signature: {hex}`, HMAC-SHA256 of the body under the app secret. This scheme answers the `GET`
/// with `challenge`.
///
/// **Nothing is deduplicated:** a notification only names the accounts that changed, so two of them are equal bytes.
/// Every delivery runs, including retries. A notification says where to look, and looking twice does no harm.
/// **Replays** pass: a captured delivery never expires, and the replay guard does not see events without an id.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let dropbox = scheme::dropbox(std::env::var("DROPBOX_APP_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn dropbox(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("dropbox")
        .api_keys(&["sl."], "the app's secret, from its settings in the app console")
        .signature("x-dropbox-signature", "{hex}")
        .own_headers(["x-dropbox-*"])
        .id_source(IdSource::none())
        .type_source(TypeSource::none())
        .probe(answer_challenge)
        .build(secrets)
}

/// Answers Dropbox's `GET ?challenge=…`.
fn answer_challenge(head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
    let challenge = form_value(query_of_get(head)?, "challenge").filter(|challenge| is_word(challenge))?;
    Some(Ok(text_response(challenge.into_owned())))
}
