use bytes::Bytes;
use http::Response;
use subtle::ConstantTimeEq;

use super::DAY;
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::form_pairs::value_of;
use crate::scheme::handshakes::{is_word, plain, query_of_get};
use crate::scheme::{Head, Template};
use crate::secrets::{IntoSecrets, Secret};

/// Meta, with WhatsApp, Instagram and Messenger: `X-Hub-Signature-256: sha256={hex}`, HMAC-SHA256 of the body as it was sent,
/// under the app secret. The `GET` with `hub.challenge` is answered to whoever knows `verify_token`, others get 403.
///
/// **Id:** the digest of the body: batches have no id, but their entries tell ids and times. **Reported:** retries up to 7 days
/// for WhatsApp; bodies have up to 3 MB.
///
/// # Errors
/// When a secret cannot be one, or the token is empty.
pub fn meta(secrets: impl IntoSecrets, verify_token: impl Into<String>) -> Result<Template, ConfigError> {
    let verify_token = Secret::new(verify_token)?;
    Template::builder("meta")
        .signature("x-hub-signature-256", "sha256={hex}")
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::json("object")?)
        .retry_window(7 * DAY)
        .body_limit(3 * 1024 * 1024)
        .probe(move |head| hub_challenge(head, verify_token.text()))
        .build(secrets)
}

/// Dropbox: `X-Dropbox-Signature: {hex}`, HMAC-SHA256 of the body under the app secret. The `GET` with `challenge` is answered
/// here.
///
/// **Nothing is deduplicated:** a notification only names the accounts that changed, so two of them are equal bytes. Every
/// delivery runs, retries too; they say where to look, and looking twice does no harm. **Replays** pass: nothing in a capture
/// grows old, and the replay guard never sees what has no id.
///
/// # Errors
/// When a secret cannot be one.
pub fn dropbox(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("dropbox")
        .signature("x-dropbox-signature", "{hex}")
        .own_headers(["x-dropbox-*"])
        .id_source(IdSource::none())
        .type_source(TypeSource::none())
        .probe(challenge)
        .build(secrets)
}

/// Meta's `GET ?hub.mode=subscribe&hub.verify_token=…&hub.challenge=…`, answered to whoever knows the token.
fn hub_challenge(head: &Head<'_>, verify_token: &str) -> Option<Result<Response<Bytes>, Rejection>> {
    let query = query_of_get(head)?;
    if value_of(query, "hub.mode")? != "subscribe" {
        return None;
    }
    let token = value_of(query, "hub.verify_token").unwrap_or_default();
    let known = bool::from(token.as_bytes().ct_eq(verify_token.as_bytes()));
    let challenge = value_of(query, "hub.challenge").filter(|challenge| known && is_word(challenge));
    Some(challenge.map(|challenge| plain(challenge.into_owned())).ok_or(RejectionKind::HandshakeRefused.into()))
}

/// Dropbox's `GET ?challenge=…`.
fn challenge(head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
    let challenge = value_of(query_of_get(head)?, "challenge").filter(|challenge| is_word(challenge))?;
    Some(Ok(plain(challenge.into_owned())))
}
