use bytes::Bytes;
use http::{Response, StatusCode};

use super::common::{HOUR, MINUTE, empty_response, json_response, seconds};
use crate::error::ConfigError;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::identity::{IdSource, TypeSource};
use crate::scheme::{Encoding, Template};
use crate::secrets::{Algorithm, IntoSecrets, Key};

/// Discord, interactions and event webhooks: `X-Signature-Ed25519: {hex}`, Ed25519 of `{timestamp}{body}`, with
/// `X-Signature-Timestamp`. The secret is the application's public key in hex. This scheme answers PINGs, and refuses
/// wrong signatures, which Discord sends on purpose, with a 401. A private key (the hex of its seed and its public key)
/// also signs, for tests.
///
/// **Id:** an interaction's `id`, signed, else the digest of the body, which contains the time of the event.
/// **Timestamps:** an hour. A duplicate interaction gets an empty response. **Reported:** event webhooks are retried
/// for 10 minutes; Discord waits 3 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let discord = scheme::discord(std::env::var("DISCORD_PUBLIC_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is not such a key.
pub fn discord(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("discord")
        .signature("x-signature-ed25519", "{hex}")
        .timestamp("x-signature-timestamp")
        .algorithm(Algorithm::Ed25519)
        .secret_encoding(Encoding::Hex)
        .signed("{timestamp}{body}")
        .tolerance(HOUR)
        .id_source(IdSource::json("id")?.or(IdSource::body_digest()))
        .type_source(TypeSource::json("event.type")?)
        .sender_timeout(seconds(3))
        .retry_window(10 * MINUTE)
        .handshake(answer_ping)
        .build(secrets)
}

/// Answers Discord's PINGs: `type` 1 of interactions in kind, `type` 0 of event webhooks with nothing. An event is of
/// `type` 1 too, but has an `event`.
fn answer_ping(body: &[u8], _: &Key) -> Option<Response<Bytes>> {
    let paths = [&JsonPath::key("type"), &JsonPath::key("event")];
    match json_body::read(body, paths).ok()? {
        [Field::Other("0"), Field::Absent] => Some(empty_response(StatusCode::NO_CONTENT)),
        [Field::Other("1"), Field::Absent] => Some(json_response(r#"{"type":1}"#.to_owned())),
        _ => None,
    }
}
