use super::common::{DAY, HOUR, seconds};
use super::standard::timestamped_list;
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::scheme::Template;
use crate::secrets::IntoSecrets;

/// Stripe: `Stripe-Signature: t={timestamp},v1={hex}`, HMAC-SHA256 of `{timestamp}.{body}` under the secret's whole
/// text, `whsec_` included.
///
/// **Id:** JSON `id`, signed. **Reported:** retries over three days.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let stripe = scheme::stripe(std::env::var("STRIPE_SECRET")?)?;
/// // While the secret is rotated at Stripe, both are accepted.
/// let stripe = scheme::stripe([std::env::var("STRIPE_SECRET")?, std::env::var("STRIPE_OLD_SECRET")?])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`timestamped`](super::timestamped).
pub fn stripe(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    timestamped_list("stripe", "stripe-signature")
        .api_keys(
            &["sk_", "rk_", "pk_"],
            "the endpoint's signing secret, whsec_…, from the dashboard under Webhooks, or from `stripe listen`",
        )
        .own_headers(["stripe-*"])
        .retry_window(3 * DAY)
        .build(secrets)
}

/// Paddle Billing: `Paddle-Signature: ts={timestamp};h1={hex}`, HMAC-SHA256 of `{timestamp}:{body}`.
///
/// **Id:** JSON `event_id`, signed. **Timestamps:** five seconds, as in Paddle's SDKs; raise it if your clock is not
/// synchronised. **Reported:** retries over three days; Paddle waits 5 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let paddle = scheme::paddle(std::env::var("PADDLE_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`timestamped`](super::timestamped).
pub fn paddle(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("paddle")
        .signature("paddle-signature", "ts={timestamp};h1={hex}")
        .api_keys(&["pdl_live_", "pdl_sdbx_"], "the secret key of the notification destination, pdl_ntfset_…")
        .own_headers(["paddle-*"])
        .signed("{timestamp}:{body}")
        .tolerance(seconds(5))
        .id_source(IdSource::json("event_id")?)
        .type_source(TypeSource::json("event_type")?)
        .sender_timeout(seconds(5))
        .retry_window(3 * DAY)
        .build(secrets)
}

/// Shopify: `X-Shopify-Hmac-Sha256: {base64}`, HMAC-SHA256 of the body under the app's client secret. The newer headers
/// without `X-` take precedence.
///
/// **Id:** `X-Shopify-Webhook-Id` and the type, not signed. `X-Shopify-Event-Id`, which all deliveries of one
/// merchant's action share, only counts if that is missing. **Type:** `X-Shopify-Topic`, not signed. **Replays** under
/// another id pass, unless the replay guard is on, which also refuses two subscriptions to one topic at one endpoint:
/// their bytes are equal. Two topics may share their bytes as well, so the guard includes the topic, though it is not
/// signed: a replay under another topic passes even with the guard. **Retries:** 8 over 4 hours. **Reported:** the
/// webhook id is the same on every retry; Shopify waits 5 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let shopify = scheme::shopify(std::env::var("SHOPIFY_CLIENT_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn shopify(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    let webhook =
        IdSource::unsigned_header("shopify-webhook-id")?.or(IdSource::unsigned_header("x-shopify-webhook-id")?);
    let event = IdSource::unsigned_header("shopify-event-id")?.or(IdSource::unsigned_header("x-shopify-event-id")?);
    Template::builder("shopify")
        .signature("shopify-hmac-sha256", "{base64}")
        .api_keys(&["shpat_", "shpca_", "shppa_"], "the app's client secret, from its API credentials")
        .or_signature("x-shopify-hmac-sha256")
        .own_headers(["shopify-*", "x-shopify-*"])
        .id_source(webhook.or(event).with_type())
        .type_source(TypeSource::header("shopify-topic")?.or(TypeSource::header("x-shopify-topic")?))
        .sender_timeout(seconds(5))
        .retry_window(4 * HOUR)
        .build(secrets)
}

/// Square: `x-square-hmacsha256-signature: {base64}`, HMAC-SHA256 of `{url}{body}`. `url` is the notification URL as
/// configured at Square.
///
/// **Id:** JSON `event_id`, signed. **Reported:** retries over 24 hours.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let square = scheme::square(std::env::var("SQUARE_SIGNATURE_KEY")?, "https://example.com/webhooks/square")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret or the URL is invalid.
pub fn square(secrets: impl IntoSecrets, url: &str) -> Result<Template, ConfigError> {
    Template::builder("square")
        .api_keys(&["sq0", "EAAA"], "the signature key of the webhook subscription, from the developer console")
        .signature("x-square-hmacsha256-signature", "{base64}")
        .own_headers(["square-*", "x-square-*"])
        .signed("{url}{body}")
        .url(url)
        .id_source(IdSource::json("event_id")?)
        .retry_window(DAY)
        .build(secrets)
}

/// Coinbase Commerce: `X-CC-Webhook-Signature: {hex}`, HMAC-SHA256 of the body.
///
/// **Id:** JSON `event.id`, signed. The top-level `id` changes with every attempt. **Reported:** retries over three
/// days.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let coinbase_commerce = scheme::coinbase_commerce(std::env::var("COINBASE_COMMERCE_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn coinbase_commerce(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("coinbase-commerce")
        .signature("x-cc-webhook-signature", "{hex}")
        .own_headers(["x-cc-*"])
        .id_source(IdSource::json("event.id")?)
        .type_source(TypeSource::json("event.type")?)
        .retry_window(3 * DAY)
        .build(secrets)
}

/// Lemon Squeezy: `X-Signature: {hex}`, HMAC-SHA256 of the body.
///
/// **Id:** the digest of the body, which contains the event's name and the whole object. **Reported:** there is no id.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let lemonsqueezy = scheme::lemonsqueezy(std::env::var("LEMONSQUEEZY_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn lemonsqueezy(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("lemonsqueezy")
        .signature("x-signature", "{hex}")
        .own_headers(["x-event-name"])
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::json("meta.event_name")?)
        .build(secrets)
}
