use std::borrow::Cow;

use bytes::Bytes;
use http::Response;

use super::{DAY, seconds};
use crate::error::ConfigError;
use crate::identity::envelope::{self, JsonPath};
use crate::identity::{IdSource, TypeSource};
use crate::scheme::Template;
use crate::scheme::form_pairs::value_of;
use crate::scheme::handshakes::{is_word, plain, texts};
use crate::secrets::{IntoSecrets, Key};

/// Slack: `X-Slack-Signature: v0={hex}`, HMAC-SHA256 of `v0:{timestamp}:{body}`, with `X-Slack-Request-Timestamp`. The
/// `url_verification` is answered here, if it is signed.
///
/// **Id:** JSON `event_id`, or the `trigger_id` of slash commands and interactions, signed. Interactions without one, such as
/// `view_closed` and `block_suggestion`, are not deduplicated: two of them may be equal bytes. **Reported:** `trigger_id`; retries
/// at once, after 1 and after 5 minutes, and with Delayed Events for a day, so a shorter retention is warned about; Slack waits
/// 3 s.
///
/// # Errors
/// When a secret cannot be one.
pub fn slack(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    let trigger_id = IdSource::signed_by(|_, body| of_form(body, "trigger_id")).described("form trigger_id");
    let kind = TypeSource::by_body(|body| of_form(body, "command").or_else(|| of_form(body, "type")));
    Template::builder("slack")
        .signature("x-slack-signature", "v0={hex}")
        .timestamp("x-slack-request-timestamp")
        .own_headers(["x-slack-*"])
        .signed("v0:{timestamp}:{body}")
        .id_source(IdSource::json("event_id")?.or(trigger_id).or(IdSource::none()))
        .type_source(TypeSource::json("event.type")?.or(TypeSource::json("type")?).or(kind))
        .sender_timeout(seconds(3))
        .retry_window(DAY)
        .handshake(url_verification)
        .build(secrets)
}

/// A field of a slash command's form, or of the JSON in an interaction's `payload`.
fn of_form(body: &[u8], name: &str) -> Option<String> {
    if let Some(value) = value_of(body, name) {
        return Some(value.into_owned());
    }
    let payload = value_of(body, "payload")?;
    let [field] = envelope::read(payload.as_bytes(), [&JsonPath::key(name)]).ok()?;
    field.text().map(Cow::into_owned)
}

/// Slack's `url_verification`: the challenge comes back as text.
fn url_verification(body: &[u8], _: &Key) -> Option<Response<Bytes>> {
    let [kind, challenge] = texts(body, ["type", "challenge"])?;
    (kind == "url_verification" && is_word(&challenge)).then(|| plain(challenge))
}
