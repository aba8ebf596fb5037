use super::DAY;
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::scheme::{Encoding, Template};
use crate::secrets::{Algorithm, IntoSecrets};

/// SendGrid: `X-Twilio-Email-Event-Webhook-Signature: {base64}`, ECDSA over P-256 of `{timestamp}{body}`, with
/// `X-Twilio-Email-Event-Webhook-Timestamp`. The secret is the public key as SendGrid shows it, base64 of DER. A private key
/// (PKCS #8, base64) also signs, for tests.
///
/// **Id:** the digest of the body, a batch whose events all have a `sg_event_id`. **Timestamps** may be two days old, because
/// SendGrid does not say that it signs a retry anew. **Reported:** retries over a day.
///
/// # Errors
/// When a secret is not such a key.
pub fn sendgrid(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("sendgrid")
        .signature("x-twilio-email-event-webhook-signature", "{base64}")
        .timestamp("x-twilio-email-event-webhook-timestamp")
        .own_headers(["x-twilio-email-*"])
        .algorithm(Algorithm::EcdsaP256)
        .secret_encoding(Encoding::Base64)
        .signed("{timestamp}{body}")
        .tolerance(2 * DAY)
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::none())
        .retry_window(DAY)
        .build(secrets)
}
