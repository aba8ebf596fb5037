use super::{DAY, seconds};
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::scheme::{Template, TemplateBuilder};
use crate::secrets::IntoSecrets;

/// The default scheme: `webhook-signature: t=<unix seconds>,v1=<hex>[,v1=<hex> …]`, HMAC-SHA256 of `t`, a dot and the body, under
/// the secret's text.
///
/// Any `v1` may match any active secret, and signatures of other versions are passed over; everything else that is not of this
/// form is refused. [`Template::header`] takes it from another header.
///
/// **Id:** the top-level `id` of the JSON body, signed.
///
/// # Errors
/// When a secret cannot be one, or there are none, or more than eight.
pub fn timestamped(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    list("timestamped", "webhook-signature").build(secrets)
}

/// Stripe: `Stripe-Signature: t={timestamp},v1={hex}`, HMAC-SHA256 of `{timestamp}.{body}` under the secret's whole text,
/// `whsec_` included.
///
/// **Id:** JSON `id`, signed. **Reported:** retries over three days.
///
/// # Errors
/// As [`timestamped`].
pub fn stripe(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    list("stripe", "stripe-signature").own_headers(["stripe-*"]).retry_window(3 * DAY).build(secrets)
}

/// Paddle Billing: `Paddle-Signature: ts={timestamp};h1={hex}`, HMAC-SHA256 of `{timestamp}:{body}`.
///
/// **Id:** JSON `event_id`, signed. **Timestamps:** five seconds, as in Paddle's SDKs; raise it if your clock is not
/// synchronised. **Reported:** retries over three days; Paddle waits 5 s.
///
/// # Errors
/// As [`timestamped`].
pub fn paddle(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("paddle")
        .signature("paddle-signature", "ts={timestamp};h1={hex}")
        .own_headers(["paddle-*"])
        .signed("{timestamp}:{body}")
        .tolerance(seconds(5))
        .id_source(IdSource::json("event_id")?)
        .type_source(TypeSource::json("event_type")?)
        .sender_timeout(seconds(5))
        .retry_window(3 * DAY)
        .build(secrets)
}

/// `t=…,v1=…` over the timestamp, a dot and the body.
pub(super) fn list(name: &'static str, header: &str) -> TemplateBuilder {
    Template::builder(name).signature(header, "t={timestamp},v1={hex}").signed("{timestamp}.{body}")
}
