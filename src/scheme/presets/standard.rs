use zeroize::Zeroizing;

use super::common::{DAY, HOUR, MINUTE, seconds};
use crate::error::ConfigError;
use crate::scheme::{Encoding, Template, TemplateBuilder};
use crate::secrets::{Algorithm, IntoSecrets, Key};

/// The default scheme: `webhook-signature: t=<unix seconds>,v1=<hex>[,v1=<hex> …]`, HMAC-SHA256 of `t`, a dot and the
/// body, under the secret's text.
///
/// Any `v1` may match any active secret, and signatures of other versions are skipped. A header that is malformed in
/// any other way is refused. [`Template::header`] takes the signature from another header.
///
/// **Id:** the top-level `id` of the JSON body, signed.
///
/// ```
/// use tower_webhook::scheme;
///
/// let own = scheme::timestamped("a secret that both sides know")?.header("x-acme-signature")?;
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
///
/// # Errors
/// If a secret is invalid, or if there are none, or more than eight.
pub fn timestamped(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    timestamped_list("timestamped", "webhook-signature").build(secrets)
}

/// Standard Webhooks: `webhook-signature: v1,{base64} …`, HMAC-SHA256 of `{id}.{timestamp}.{body}`, with `webhook-id`
/// and `webhook-timestamp`.
///
/// Secrets are base64 after an optional `whsec_`. A public key, `whpk_…`, verifies the asymmetric `v1a` signatures
/// instead and needs the feature `ed25519`. Both kinds may be given, and any may match. A private key, `whsk_…`, also
/// signs, for tests. The specification asks for secrets of 24 to 64 bytes; other lengths are accepted.
///
/// **Id:** `webhook-id`, signed. An id in which a dot is followed by a number like a timestamp is refused: the signed
/// text could then be split in two ways. **Retries:** each sender has its own. The schedule that the specification
/// suggests goes on for 76 hours, and a shorter retention causes a warning. GitLab, OpenAI, Svix and others have
/// presets of their own.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let sender = scheme::standard_webhooks(std::env::var("WEBHOOK_SECRET")?)?; // whsec_… or whpk_…
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is not base64.
pub fn standard_webhooks(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    standard_template("standard-webhooks").retry_window(76 * HOUR).build(secrets)
}

/// Svix, and every sender that uses it: Standard Webhooks with `svix-id`, `svix-timestamp` and `svix-signature`, or
/// with the unbranded `webhook-…` that some senders use. A delivery with both is verified by the first.
///
/// **Id:** `svix-id`, signed. **Retries:** 8 attempts over 28 hours; Svix waits 15 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let svix = scheme::svix(std::env::var("SVIX_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`standard_webhooks`].
pub fn svix(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    svix_template("svix").api_keys(&["sk_", "testsk_"], "the endpoint's signing secret, whsec_…").build(secrets)
}

/// Clerk, which sends with [`svix`].
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let clerk = scheme::clerk(std::env::var("CLERK_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`standard_webhooks`].
pub fn clerk(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    svix_template("clerk")
        .api_keys(&["sk_", "pk_"], "the endpoint's signing secret, whsec_…, from the dashboard under Webhooks")
        .build(secrets)
}

/// Resend, which sends with [`svix`].
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let resend = scheme::resend(std::env::var("RESEND_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`standard_webhooks`].
pub fn resend(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    svix_template("resend")
        .api_keys(&["re_"], "the webhook's signing secret, whsec_…, from the dashboard under Webhooks")
        .build(secrets)
}

/// OpenAI: [`standard_webhooks`], except that a secret without `whsec_` is the key itself, and not base64.
///
/// A signature without its `v1,` is refused, though OpenAI's SDKs accept it. **Id:** `webhook-id`, signed.
/// **Reported:** retries up to 72 hours.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let openai = scheme::openai(std::env::var("OPENAI_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the text after `whsec_` is not base64.
pub fn openai(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    let is_marked = |text: &str| ["whsec_", "whpk_", "whsk_"].iter().any(|prefix| text.starts_with(prefix));
    let key = move |text: &str| match is_marked(text) {
        true => standard_key(text),
        false => Key::hmac_sha256(text.as_bytes()),
    };
    standard_template("openai")
        .key(key)
        .api_keys(&["sk-"], "the webhook's signing secret, whsec_…, from the project's settings under Webhooks")
        .retry_window(3 * DAY)
        .build(secrets)
}

/// `t=…,v1=…` over the timestamp, a dot and the body.
pub(super) fn timestamped_list(name: &'static str, header: &str) -> TemplateBuilder {
    Template::builder(name).signature(header, "t={timestamp},v1={hex}").signed("{timestamp}.{body}")
}

pub(super) fn standard_template(name: &'static str) -> TemplateBuilder {
    with_common_parts(Template::builder(name).signature("webhook-signature", "v1,{base64} …"))
        .timestamp("webhook-timestamp")
        .id("webhook-id")
}

fn svix_template(name: &'static str) -> TemplateBuilder {
    with_common_parts(Template::builder(name).signature("svix-signature", "v1,{base64} …"))
        .timestamp("svix-timestamp")
        .id("svix-id")
        .own_headers(["svix-*"])
        .or_signature("webhook-signature")
        .timestamp("webhook-timestamp")
        .id("webhook-id")
        .sender_timeout(seconds(15))
        .retry_window(27 * HOUR + 36 * MINUTE)
}

/// The parts that do not depend on the headers' names.
fn with_common_parts(builder: TemplateBuilder) -> TemplateBuilder {
    builder.or_version("v1a", Algorithm::Ed25519).signed("{id}.{timestamp}.{body}").key(standard_key)
}

fn standard_key(text: &str) -> Result<Key, ConfigError> {
    let asymmetric = text.strip_prefix("whpk_").or(text.strip_prefix("whsk_"));
    let encoded = asymmetric.unwrap_or_else(|| text.strip_prefix("whsec_").unwrap_or(text));
    let bytes = decoded(encoded)?;
    Key::new(if asymmetric.is_some() { Algorithm::Ed25519 } else { Algorithm::HmacSha256 }, &bytes)
}

/// Decodes a signing token of GitLab. All of them have 32 bytes: a token of another length was not copied whole.
pub(super) fn gitlab_key(text: &str) -> Result<Key, ConfigError> {
    let bytes = decoded(text.strip_prefix("whsec_").unwrap_or(text))?;
    if bytes.len() != 32 {
        let hint =
            "a signing token of GitLab is whsec_ and the base64 of 32 bytes, and this one is not: copy all of it";
        return Err(ConfigError::secret(hint));
    }
    Key::hmac_sha256(&bytes)
}

fn decoded(text: &str) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    let hint = "Standard Webhooks secrets are base64 after whsec_, and this one is not";
    Encoding::Base64.secret(text).map_err(|_| ConfigError::secret(hint))
}
