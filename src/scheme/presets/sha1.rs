use bytes::Bytes;
use http::{Method, Response, StatusCode};

use super::common::empty_response;
use crate::error::ConfigError;
use crate::identity::TypeSource;
use crate::rejection::Rejection;
use crate::scheme::body::json_texts;
use crate::scheme::{Head, Template};
use crate::secrets::{Algorithm, IntoSecrets, Key};

/// Intercom: `X-Hub-Signature: sha1={hex}`, HMAC-SHA1 of the body under the client secret. This scheme answers the
/// `ping` topic, and the `HEAD` request by which Intercom checks the endpoint.
///
/// **Id:** JSON `id`, signed. **Reported:** that `HEAD`, and the `ping`.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let intercom = scheme::intercom(std::env::var("INTERCOM_CLIENT_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn intercom(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("intercom")
        .signature("x-hub-signature", "sha1={hex}")
        .algorithm(Algorithm::HmacSha1)
        .type_source(TypeSource::json("topic")?)
        .probe(answer_head_request)
        .handshake(answer_ping)
        .build(secrets)
}

/// Answers Intercom's `ping` topic.
fn answer_ping(body: &[u8], _: &Key) -> Option<Response<Bytes>> {
    let [topic] = json_texts(body, ["topic"])?;
    (topic == "ping").then(|| empty_response(StatusCode::OK))
}

/// Answers the `HEAD` request by which Intercom checks that the URL responds.
fn answer_head_request(head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
    (head.method() == Method::HEAD).then(|| Ok(empty_response(StatusCode::OK)))
}

/// Vercel: `x-vercel-signature: {hex}`, HMAC-SHA1 of the body.
///
/// **Id:** JSON `id`, signed.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let vercel = scheme::vercel(std::env::var("VERCEL_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn vercel(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("vercel").signature("x-vercel-signature", "{hex}").algorithm(Algorithm::HmacSha1).build(secrets)
}
