use std::borrow::Cow;

use bytes::Bytes;
use http::Response;
use subtle::ConstantTimeEq;

use super::common::{DAY, is_word, query_of_get, seconds, text_response};
use crate::error::ConfigError;
use crate::identity::json_body::{self, JsonPath};
use crate::identity::{IdSource, TypeSource};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::body::{form_value, json_texts};
use crate::scheme::{Head, Template};
use crate::secrets::{IntoSecrets, Key, Secret};

/// Slack: `X-Slack-Signature: v0={hex}`, HMAC-SHA256 of `v0:{timestamp}:{body}`, with `X-Slack-Request-Timestamp`. This
/// scheme answers the `url_verification`, if it is signed.
///
/// **Id:** JSON `event_id`, or the `trigger_id` of slash commands and interactions, signed. Interactions without one,
/// such as `view_closed` and `block_suggestion`, are not deduplicated: two of them may be equal bytes. **Reported:**
/// `trigger_id`; retries at once, after 1 and after 5 minutes, and with Delayed Events for a day, so a shorter
/// retention causes a warning; Slack waits 3 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let slack = scheme::slack(std::env::var("SLACK_SIGNING_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn slack(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    let trigger_id =
        IdSource::signed_by(|_, body| form_or_payload_field(body, "trigger_id")).described("form trigger_id");
    let kind = TypeSource::by_body(|body| {
        form_or_payload_field(body, "command").or_else(|| form_or_payload_field(body, "type"))
    });
    Template::builder("slack")
        .api_keys(
            &["xoxb-", "xoxp-", "xapp-", "xoxa-", "xoxe"],
            "the app's signing secret, from its settings under Basic Information",
        )
        .signature("x-slack-signature", "v0={hex}")
        .timestamp("x-slack-request-timestamp")
        .own_headers(["x-slack-*"])
        .signed("v0:{timestamp}:{body}")
        .id_source(IdSource::json("event_id")?.or(trigger_id).or(IdSource::none()))
        .type_source(TypeSource::json("event.type")?.or(TypeSource::json("type")?).or(kind))
        .sender_timeout(seconds(3))
        .retry_window(DAY)
        .handshake(answer_url_verification)
        .build(secrets)
}

/// A field of a slash command's form, or of the JSON in an interaction's `payload`.
fn form_or_payload_field(body: &[u8], name: &str) -> Option<String> {
    if let Some(value) = form_value(body, name) {
        return Some(value.into_owned());
    }
    let payload = form_value(body, "payload")?;
    let [field] = json_body::read(payload.as_bytes(), [&JsonPath::key(name)]).ok()?;
    field.text().map(Cow::into_owned)
}

/// Answers Slack's `url_verification` with the challenge as text.
fn answer_url_verification(body: &[u8], _: &Key) -> Option<Response<Bytes>> {
    let [kind, challenge] = json_texts(body, ["type", "challenge"])?;
    (kind == "url_verification" && is_word(&challenge)).then(|| text_response(challenge))
}

/// Meta, with WhatsApp, Instagram and Messenger: `X-Hub-Signature-256: sha256={hex}`, HMAC-SHA256 of the body as it was
/// sent, under the app secret. This scheme answers the `GET` with `hub.challenge` if it contains `verify_token`, and
/// else refuses it with a 403.
///
/// **Id:** the digest of the body: batches have no id, but their entries contain ids and times. **Reported:** retries
/// up to 7 days for WhatsApp; bodies have up to 3 MB.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let meta = scheme::meta(std::env::var("META_APP_SECRET")?, std::env::var("META_VERIFY_TOKEN")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid, or the token is empty.
pub fn meta(secrets: impl IntoSecrets, verify_token: impl Into<String>) -> Result<Template, ConfigError> {
    let verify_token = Secret::new(verify_token)?;
    Template::builder("meta")
        .api_keys(&["EAA"], "the app's secret, from its dashboard under App settings, Basic")
        .signature("x-hub-signature-256", "sha256={hex}")
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::json("object")?)
        .retry_window(7 * DAY)
        .body_limit(3 * 1024 * 1024)
        .probe(move |head| answer_hub_challenge(head, verify_token.text()))
        .build(secrets)
}

/// Answers Meta's `GET ?hub.mode=subscribe&hub.verify_token=…&hub.challenge=…`, if the token is right.
fn answer_hub_challenge(head: &Head<'_>, verify_token: &str) -> Option<Result<Response<Bytes>, Rejection>> {
    let query = query_of_get(head)?;
    if form_value(query, "hub.mode")? != "subscribe" {
        return None;
    }
    let token = form_value(query, "hub.verify_token").unwrap_or_default();
    let known = bool::from(token.as_bytes().ct_eq(verify_token.as_bytes()));
    let challenge = form_value(query, "hub.challenge").filter(|challenge| known && is_word(challenge));
    Some(challenge.map(|challenge| text_response(challenge.into_owned())).ok_or(RejectionKind::HandshakeRefused.into()))
}
