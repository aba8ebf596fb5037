use http::StatusCode;

use super::common::{MINUTE, seconds};
use super::standard;
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::scheme::Template;
use crate::secrets::{Algorithm, IntoSecrets};

/// GitHub: `X-Hub-Signature-256: sha256={hex}`, HMAC-SHA256 of the body. The additional SHA-1 header is ignored.
///
/// **Id:** `X-GitHub-Delivery`, not signed, the same on a redelivery. **Type:** `X-GitHub-Event`, not signed.
/// **Replays** under another id pass, unless the replay guard is on. A manual redelivery keeps the id, so the guard
/// lets it pass. The guard compares the body alone, because the type could be changed too: it refuses a second event of
/// equal bytes, such as the one that two hooks send to one endpoint. GitHub never retries by itself; it waits 10 s, and
/// its bodies have up to 25 MB.
///
/// ```no_run
/// use std::time::Duration;
/// use tower_webhook::{WebhookLayer, scheme, store::MemoryStore};
///
/// let github = scheme::github(std::env::var("GITHUB_SECRET")?)?;
/// // Refuses a captured delivery that is sent again under another id, for a week.
/// let layer = WebhookLayer::new(github, MemoryStore::new()).replay_guard(Duration::from_secs(7 * 24 * 3600))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn github(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("github")
        .api_keys(
            &["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"],
            "the secret that was given to the webhook, in the repository's settings under Webhooks",
        )
        .signature("x-hub-signature-256", "sha256={hex}")
        .own_headers(["x-github-*"])
        .id_source(IdSource::unsigned_header("x-github-delivery")?)
        .type_source(TypeSource::header("x-github-event")?)
        .sender_timeout(seconds(10))
        .body_limit(25 * 1024 * 1024)
        .build(secrets)
}

/// GitLab with a secret token: `X-Gitlab-Token` is the secret itself. **Nothing is signed:** an attacker who sees one
/// request can send any other. Use [`gitlab_signed`] if your GitLab has signing tokens.
///
/// **Id:** `Idempotency-Key`, not signed, the same on every retry. A delivery of an older GitLab, without it, is not
/// deduplicated. (Hooks that trigger each other share `X-Gitlab-Event-UUID`.) The replay guard is of no use here, since
/// an attacker who can replay has the token. **Type:** `X-Gitlab-Event`, not signed. **Reported:** GitLab waits 10 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let gitlab = scheme::gitlab(std::env::var("GITLAB_SECRET_TOKEN")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn gitlab(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("gitlab")
        .api_keys(&["glpat-"], "the webhook's secret token, from the project's settings under Webhooks")
        .signature("x-gitlab-token", "{token}")
        .own_headers(["x-gitlab-*"])
        .algorithm(Algorithm::Token)
        .signed("")
        .id_source(IdSource::unsigned_header("idempotency-key")?.or(IdSource::none()))
        .type_source(TypeSource::header("x-gitlab-event")?)
        .sender_timeout(seconds(10))
        .body_limit(25 * 1024 * 1024)
        .build(secrets)
}

/// GitLab with a signing token: [`standard_webhooks`](super::standard_webhooks), with GitLab's event types.
///
/// **Id:** `webhook-id`, signed. **Type:** `X-Gitlab-Event`, not signed; the body's `object_kind` is. **Reported:**
/// GitLab waits 10 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let gitlab_signed = scheme::gitlab_signed(std::env::var("GITLAB_SIGNING_TOKEN")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is not the base64 of 32 bytes, after an optional `whsec_`.
pub fn gitlab_signed(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    standard::standard_template("gitlab-signed")
        .key(standard::gitlab_key)
        .own_headers(["x-gitlab-*", "idempotency-key"])
        .type_source(TypeSource::header("x-gitlab-event")?)
        .sender_timeout(seconds(10))
        .body_limit(25 * 1024 * 1024)
        .build(secrets)
}

/// Bitbucket Cloud: `X-Hub-Signature: sha256={hex}`, HMAC-SHA256 of the body.
///
/// **Id:** `X-Request-UUID`, not signed. **Type:** `X-Event-Key`, not signed. **Replays** under another id pass, unless
/// the replay guard is on. The guard compares the body alone, because the type could be changed too: it refuses a
/// second event of equal bytes, a request that is resent manually, and a retry should Bitbucket give it a new id.
/// **Reported:** Bitbucket tries twice more.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let bitbucket = scheme::bitbucket(std::env::var("BITBUCKET_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn bitbucket(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("bitbucket")
        .signature("x-hub-signature", "sha256={hex}")
        .id_source(IdSource::unsigned_header("x-request-uuid")?)
        .own_headers(["x-event-key", "x-hook-uuid", "x-attempt-number", "x-event-time"])
        .type_source(TypeSource::header("x-event-key")?)
        .build(secrets)
}

/// Atlassian Jira: `X-Hub-Signature: sha256={hex}`, HMAC-SHA256 of the body.
///
/// **Id:** `X-Atlassian-Webhook-Identifier`, not signed. **Replays** under another id pass, unless the replay guard is
/// on. The guard compares the body alone, and refuses a second event with equal bytes as well. **Reported:** the id is
/// the same on every retry.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let atlassian_jira = scheme::atlassian_jira(std::env::var("ATLASSIAN_JIRA_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn atlassian_jira(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("atlassian-jira")
        .signature("x-hub-signature", "sha256={hex}")
        .id_source(IdSource::unsigned_header("x-atlassian-webhook-identifier")?)
        .own_headers(["x-atlassian-*"])
        .type_source(TypeSource::json("webhookEvent")?)
        .build(secrets)
}

/// Linear: `Linear-Signature: {hex}`, HMAC-SHA256 of the body, which contains the time in milliseconds as
/// `webhookTimestamp`.
///
/// **Id:** `Linear-Delivery`, not signed. **Replays** under another id pass for the two minutes of the timestamp,
/// unless the replay guard is on. The guard compares the body alone. It never refuses another event, since every body
/// contains its time. **Timestamps:** one minute, as in Linear's SDK. **Reported:** the id's header; retries after 1
/// minute, 1 hour and 6 hours; Linear waits 5 s.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let linear = scheme::linear(std::env::var("LINEAR_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn linear(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("linear")
        .api_keys(&["lin_api_", "lin_oauth_"], "the webhook's signing secret, lin_wh_…, from the settings under API")
        .signature("linear-signature", "{hex}")
        .own_headers(["linear-*"])
        .body_timestamp("webhookTimestamp")
        .in_millis()
        .tolerance(MINUTE)
        .id_source(IdSource::unsigned_header("linear-delivery")?)
        .sender_timeout(seconds(5))
        .retry_window(seconds(7 * 3600 + 60))
        .build(secrets)
}

/// PagerDuty v3: `X-PagerDuty-Signature: v1={hex},…`, HMAC-SHA256 of the body under the secret's text, which looks like
/// base64 but is not decoded.
///
/// **Id:** JSON `event.id`, signed. **Refusals:** 403, so that PagerDuty does not deliver again.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let pagerduty = scheme::pagerduty(std::env::var("PAGERDUTY_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn pagerduty(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("pagerduty")
        .signature("x-pagerduty-signature", "v1={hex},…")
        .own_headers(["x-pagerduty-*"])
        .id_source(IdSource::json("event.id")?)
        .type_source(TypeSource::json("event.event_type")?)
        .body_limit(2 * 1024 * 1024)
        .refusal_status(StatusCode::FORBIDDEN)
        .build(secrets)
}

/// Sentry: `Sentry-Hook-Signature: {hex}`, HMAC-SHA256 of the body.
///
/// **Id:** `Request-ID`, not signed, and generated anew for every request: it recognises a request that arrives twice,
/// not one that Sentry sends again. **Type:** `Sentry-Hook-Resource`, not signed. **Replays** under another id pass. Do
/// not use the replay guard with Sentry. It compares the body alone, because the type could be changed too, so it would
/// refuse every request that Sentry sends again, and an issue that changes back and forth. Sentry waits 1 s only.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let sentry = scheme::sentry(std::env::var("SENTRY_CLIENT_SECRET")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn sentry(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("sentry")
        .signature("sentry-hook-signature", "{hex}")
        .own_headers(["sentry-hook-*"])
        .id_source(IdSource::unsigned_header("request-id")?)
        .type_source(TypeSource::header("sentry-hook-resource")?)
        .sender_timeout(seconds(1))
        .build(secrets)
}
