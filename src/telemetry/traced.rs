//! The telemetry with the feature `tracing`.

use std::error::Error;
use std::time::Duration;

use tracing::{Level, field};

use super::Delivered;
use crate::EventKey;
use crate::error::with_causes;
use crate::outcome::{AttemptOutcome, Outcome};
use crate::rejection::{Rejection, RejectionKind};
use crate::throttle::Shortened;

macro_rules! tell {
    ($level:ident, $key:expr, $($rest:tt)+) => {
        tracing::$level!(
            target: "tower_webhook",
            endpoint = $key.endpoint(), tenant = $key.tenant(), id = $key.id(),
            $($rest)+
        )
    };
}

macro_rules! tell_audit {
    ($level:expr, $about:expr, $message:literal, $($first:tt)+) => {
        tracing::event!(
            target: "tower_webhook::audit", $level,
            $($first)+,
            endpoint = $about.endpoint,
            scheme = $about.scheme,
            tenant = $about.tenant.map(field::display),
            path = $about.path.map(field::display),
            id = $about.id,
            event_type = $about.event_type,
            secret = $about.secret_label,
            attempt = $about.attempt,
            status = $about.status,
            reason = $about.reason,
            body_changed = $about.body_changed.then_some(true),
            $message
        )
    };
}

/// Whether operators are told anything at all.
pub(crate) const IS_ON: bool = true;

/// The span in which a delivery began. It stays with the delivery when that is detached.
pub(crate) struct OuterSpan(tracing::Span);

impl OuterSpan {
    pub(crate) fn current() -> Self {
        Self(tracing::Span::current())
    }

    pub(crate) fn in_scope<T>(&self, run: impl FnOnce() -> T) -> T {
        self.0.in_scope(run)
    }
}

/// The span in which the handler of one delivery runs. The crate's own events have these fields themselves, and are
/// outside of it, or a line of the log would have them twice.
pub(crate) struct DeliverySpan(tracing::Span);

impl DeliverySpan {
    pub(crate) fn new(key: &EventKey, event_type: Option<&str>) -> Self {
        // Checked first: if `tracing` also feeds `log`, the fields of a disabled span would be recorded, too.
        Self(match tracing::enabled!(target: "tower_webhook", Level::INFO) {
            true => tracing::info_span!(
                target: "tower_webhook", "webhook",
                endpoint = key.endpoint(), tenant = key.tenant(), id = key.id(), event_type
            ),
            false => tracing::Span::none(),
        })
    }

    pub(crate) fn in_scope<T>(&self, run: impl FnOnce() -> T) -> T {
        self.0.in_scope(run)
    }
}

/// Whether anything records the audit event of such a delivery. Checked before its facts are gathered.
pub(crate) fn audits(is_unverified: bool) -> bool {
    match is_unverified {
        true => tracing::enabled!(target: "tower_webhook::audit", Level::DEBUG),
        false => tracing::enabled!(target: "tower_webhook::audit", Level::ERROR),
    }
}

/// The one audit event of a delivery.
pub(crate) fn delivered(outcome: &Outcome, about: &Delivered<'_>) {
    let rejection = outcome.rejection();
    macro_rules! audit {
        ($level:expr) => {
            tell_audit!(
                $level,
                about,
                "delivery",
                outcome = outcome.as_str(),
                rejection = rejection.map(|rejection| rejection.kind().as_str()),
                detail = rejection.map(field::display)
            )
        };
    }
    let store_is_down = rejection.is_some_and(|rejection| rejection.kind() == RejectionKind::StoreUnavailable);
    match outcome {
        Outcome::Failed | Outcome::Panicked | Outcome::CompletionPending => audit!(Level::ERROR),
        Outcome::Refused(_) if store_is_down => audit!(Level::ERROR),
        // At DEBUG, since anyone can cause these; `refused` summarises the refusals, throttled.
        _ if about.is_unverified => audit!(Level::DEBUG),
        Outcome::Released | Outcome::Cancelled => audit!(Level::WARN),
        Outcome::Duplicate if about.body_changed => audit!(Level::WARN),
        _ => audit!(Level::INFO),
    }
}

/// Whether anything records what [`refused`] tells.
pub(crate) fn tells_refusals() -> bool {
    tracing::enabled!(target: "tower_webhook", Level::WARN)
}

/// Tells of refused deliveries: `count` of them since the last time.
pub(crate) fn refused(rejection: &Rejection, about: &Delivered<'_>, count: u64) {
    macro_rules! tell {
        ($level:expr) => {
            tracing::event!(
                target: "tower_webhook", $level,
                rejection = rejection.kind().as_str(), detail = %rejection, count,
                endpoint = about.endpoint, scheme = about.scheme,
                tenant = about.tenant.map(field::display), path = about.path.map(field::display),
                "deliveries are refused"
            )
        };
    }
    match rejection.kind() {
        // Scanners of the internet send these.
        RejectionKind::MissingSignature | RejectionKind::MethodNotAllowed => tell!(Level::INFO),
        _ => tell!(Level::WARN),
    }
}

/// Tells why a delivery was refused.
pub(crate) fn diagnosed(rejection: &str, diagnosis: &dyn std::fmt::Display, about: &Delivered<'_>) {
    tracing::warn!(
        target: "tower_webhook",
        rejection, diagnosis = %diagnosis,
        endpoint = about.endpoint, scheme = about.scheme,
        tenant = about.tenant.map(field::display), path = about.path.map(field::display),
        "a refused delivery was diagnosed"
    );
}

/// Tells of answers that came too late: `count` of them since the last time.
pub(crate) fn answered_late(took: Duration, waits: Duration, about: &Delivered<'_>, count: u64) {
    tracing::warn!(
        target: "tower_webhook",
        took_ms = took.as_millis() as u64, sender_timeout_ms = waits.as_millis() as u64, count,
        endpoint = about.endpoint, scheme = about.scheme, event_type = about.event_type,
        "the handler takes longer than the sender waits for an answer, so the sender repeats deliveries whose work is \
         done: accept them with WebhookLayer::inbox, and run the handler with a Worker"
    );
}

/// Tells of one body under two ids: `count` times since the last time.
pub(crate) fn body_under_two_ids(key: &EventKey, scheme: &str, id_is_signed: bool, count: u64) {
    let hint = (!id_is_signed).then_some("somebody may replay a delivery: WebhookLayer::replay_guard refuses that");
    tracing::warn!(
        target: "tower_webhook",
        endpoint = key.endpoint(), tenant = key.tenant().map(Shortened).map(field::display), id = key.id(), scheme, count,
        hint,
        "one body came under two ids within minutes, and both events run: is the url registered twice at the provider? \
         It may also be that the provider sends equal bytes for two events, or gives a retry a new id"
    );
}

/// The one audit event of a worker's attempt.
pub(crate) fn attempted(attempt_outcome: AttemptOutcome, about: &Delivered<'_>) {
    macro_rules! audit {
        ($level:expr) => {
            tell_audit!($level, about, "attempt", outcome = attempt_outcome.as_str())
        };
    }
    match attempt_outcome {
        AttemptOutcome::Buried => audit!(Level::ERROR),
        AttemptOutcome::Retried | AttemptOutcome::Lost | AttemptOutcome::Unknown => audit!(Level::WARN),
        AttemptOutcome::Completed | AttemptOutcome::Released => audit!(Level::INFO),
    }
}

pub(crate) fn lease_failed(error: &(dyn Error + 'static)) {
    tracing::warn!(target: "tower_webhook", error = with_causes(error), "the inbox could not be asked for events");
}

pub(crate) fn store_failed(verb: &str, key: &EventKey, error: &(dyn Error + 'static)) {
    tell!(warn, key, verb, error = with_causes(error), "the store failed");
}

pub(crate) fn claim_lost(key: &EventKey) {
    tell!(warn, key, "the claim is no longer held: it could not be renewed, or another delivery took it over");
}

pub(crate) fn handler_blocked(key: &EventKey) {
    tell!(
        error,
        key,
        "the handler still runs long after its attempt's timeout: it blocks its thread, so it cannot be dropped"
    );
}

pub(crate) fn settled_late(key: &EventKey) {
    tell!(info, key, "the settlement succeeded after retries");
}

pub(crate) fn settlement_refused(key: &EventKey) {
    tell!(error, key, "the late settlement was refused: another delivery ran the event");
}

pub(crate) fn settlement_given_up(key: &EventKey) {
    tell!(error, key, "the settlement failed after all retries: the event may run again");
}

pub(crate) fn drained(dropped: usize) {
    tracing::warn!(target: "tower_webhook", dropped, "the drain's deadline is over: running deliveries were dropped");
}

pub(crate) fn store_filling(used: usize, capacity: usize) {
    tracing::warn!(
        target: "tower_webhook", used, capacity,
        "the memory store is filling up: once full, its oldest records go early; raise its capacity"
    );
}

pub(crate) fn inbox_filling(open: usize, capacity: usize) {
    tracing::warn!(
        target: "tower_webhook", open, capacity,
        "the memory store's inbox is filling up with waiting and dead events: once full, it refuses new ones; \
         run more workers, look after the dead letters, or raise its capacity"
    );
}

pub(crate) fn circuit_opened(failures: u32, cool_down: Duration) {
    tracing::error!(
        target: "tower_webhook", failures, cool_down_ms = cool_down.as_millis() as u64,
        "the store failed repeatedly: its circuit is open, and claims are not put to it until it answers again"
    );
}

pub(crate) fn circuit_reopened(cool_down: Duration) {
    tracing::warn!(
        target: "tower_webhook", cool_down_ms = cool_down.as_millis() as u64,
        "the store is still away: its circuit stays open"
    );
}

pub(crate) fn circuit_probed() {
    tracing::info!(target: "tower_webhook", "the store's circuit is half open: one claim finds out whether it is back");
}

pub(crate) fn circuit_closed() {
    tracing::info!(target: "tower_webhook", "the store answers again: its circuit is closed");
}

pub(crate) fn fallback_claimed(key: &EventKey) {
    tell!(info, key, "claimed on the local fallback: other instances do not know of it until the store is back");
}

pub(crate) fn fallback_full(capacity: usize) {
    tracing::error!(
        target: "tower_webhook", capacity,
        "the local fallback is full of events that the store must be told of: further ones are refused until it is back"
    );
}

pub(crate) fn fallback_conflict(key: &EventKey, token: impl std::fmt::Display, found: &str) {
    tell!(error, key, %token, found, "the event was completed here while the store was away, and claimed elsewhere, too");
}

pub(crate) fn fallback_reconciled() {
    tracing::info!(target: "tower_webhook", "the store knows of every event that was completed without it");
}

#[cfg(feature = "redis")]
pub(crate) fn redis_connection_lost(error: &(dyn Error + 'static)) {
    tracing::warn!(
        target: "tower_webhook", error = with_causes(error),
        "a connection to Redis broke: another is taken from the pool"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn redis_claims_by_script() {
    tracing::info!(
        target: "tower_webhook",
        "this server does not know SET with both NX and GET: events are claimed by a script, which is slower"
    );
}

#[cfg(feature = "redis")]
pub(crate) fn redis_warned(warning: &str) {
    tracing::warn!(target: "tower_webhook", warning, "Redis is not configured for claims");
}

#[cfg(feature = "postgres")]
pub(crate) fn postgres_warned(warning: &str) {
    tracing::warn!(target: "tower_webhook", warning, "Postgres is not configured for claims");
}

#[cfg(feature = "sqlite")]
pub(crate) fn sqlite_warned(warning: &str) {
    tracing::warn!(target: "tower_webhook", warning, "SQLite is not set up for claims");
}

#[cfg(feature = "redis")]
pub(crate) fn redis_event_given_up(key: &str, reason: &str) {
    tracing::error!(target: "tower_webhook", key, reason, "an event of the inbox cannot be run, and is a dead letter now");
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn event_unreadable(row: impl std::fmt::Display, error: &(dyn Error + 'static)) {
    tracing::error!(
        target: "tower_webhook", %row, error = with_causes(error),
        "a stored event could not be read, and is a dead letter now: another version or another program wrote it"
    );
}

#[cfg_attr(not(feature = "postgres"), expect(dead_code))]
pub(crate) fn batch_retried(connection: &str) {
    tracing::debug!(target: "tower_webhook", connection, "a batch of the Postgres store is asked again");
}

#[cfg_attr(not(feature = "postgres"), expect(dead_code))]
pub(crate) fn purged(rows: u64) {
    tracing::debug!(target: "tower_webhook", rows, "expired events were deleted");
}

#[cfg_attr(not(feature = "postgres"), expect(dead_code))]
pub(crate) fn purge_failed(error: &(dyn Error + 'static)) {
    tracing::warn!(target: "tower_webhook", error = with_causes(error), "expired events could not be deleted");
}

pub(crate) fn lookup_failed(tenant: &str, error: &(dyn Error + 'static), count: u64) {
    tracing::warn!(
        target: "tower_webhook", tenant = %Shortened(tenant), error = with_causes(error), count,
        "a tenant's secrets could not be looked up"
    );
}

#[cfg(feature = "axum")]
pub(crate) fn missing_layer(path: &str, count: u64) {
    tracing::error!(
        target: "tower_webhook", path = %Shortened(path), count,
        "a handler asks for a WebhookEvent on a route without a WebhookLayer: add the layer to this route"
    );
}

pub(crate) fn endpoint_name_shared(name: &str) {
    tracing::warn!(
        target: "tower_webhook", endpoint = name,
        "two endpoints have the scheme's name, since no route names them: on one store, an id that both receive is \
         taken for one event; name each of them with WebhookLayer::endpoint"
    );
}

pub(crate) fn retention_too_short(retention: Duration, window: Duration) {
    tracing::warn!(
        target: "tower_webhook", retention_s = retention.as_secs(), retry_window_s = window.as_secs(),
        "the retention is shorter than the sender's retry window: a late retry would run the event again"
    );
}
