//! The report of each delivery to telemetry: how it ended, or that it was refused before its event was known.

use std::borrow::Cow;
use std::sync::Arc;

use http::StatusCode;
use http::request::Parts;

use super::config::Config;
use crate::machine::ClaimState;
use crate::outcome::Outcome;
use crate::rejection::{Rejection, RejectionKind};
use crate::route;
use crate::secrets::Prepared;
use crate::telemetry::{self, Delivered};
use crate::throttle::Shortened;

const URL_IS_SIGNED: &str =
    "the signature covers the url, so the public url of the scheme has to be the one that the sender calls";

/// The answer of the handler, as telemetry reports it.
#[derive(Default)]
pub(super) struct Answered {
    pub(super) status: Option<StatusCode>,
    /// Why the event is to be run again, or not at all.
    pub(super) reason: Option<Cow<'static, str>>,
}

impl Answered {
    pub(super) fn because(reason: &'static str) -> Self {
        Self { status: None, reason: Some(Cow::Borrowed(reason)) }
    }
}

/// Reports the outcome of a delivery to telemetry, once. If it is dropped before it was sent, the sender disconnected
/// before the handler finished.
pub(super) struct OutcomeReport {
    sent: bool,
    pub(super) config: Arc<Config>,
    event: Option<(Arc<ClaimState>, Arc<Prepared>)>,
}

impl OutcomeReport {
    pub(super) fn new(config: Arc<Config>) -> Self {
        Self { sent: false, config, event: None }
    }

    /// From now on the delivery is of this event.
    pub(super) fn about(&mut self, claim: Arc<ClaimState>, secret: Arc<Prepared>) {
        self.event = Some((claim, secret));
    }

    /// Reports that the delivery was refused before its event was known.
    pub(super) fn refuse(&mut self, rejection: &Rejection, parts: &Parts, tenant: Option<&str>) {
        self.sent = true;
        refusal(&self.config, rejection, parts, tenant);
    }

    /// Reports how the delivery ended.
    pub(super) fn send(&mut self, outcome: &Outcome, answered: &Answered) {
        self.sent = true;
        let is_unverified = *outcome == Outcome::Abandoned && self.event.is_none();
        if !telemetry::tells_refusals() && !telemetry::audits(is_unverified) {
            return;
        }
        let refused = outcome.rejection().and_then(|rejection| Some((rejection, self.count(rejection)?)));
        let about = Delivered { scheme: Some(self.config.scheme.name()), is_unverified, ..self.facts(answered) };
        if let Some((rejection, count)) = refused {
            telemetry::refused(rejection, &about, count);
        }
        let late_after = self.event.as_ref().and_then(|(claim, _)| claim.late_after());
        if let (Some(took), Some(waits)) = (late_after, self.config.terms.sender_timeout) {
            self.config.advice.answered_late(took, waits, &about, self.config.clock.monotonic());
        }
        telemetry::delivered(outcome, &about);
    }

    /// Counts a refusal of an event that is known.
    fn count(&self, rejection: &Rejection) -> Option<u64> {
        let (claim, _) = self.event.as_ref()?;
        count(&self.config, claim.key.endpoint(), rejection.kind())
    }

    fn facts<'a>(&'a self, answered: &'a Answered) -> Delivered<'a> {
        let Some((claim, secret)) = &self.event else {
            return Delivered { endpoint: self.config.endpoint.given(), ..Delivered::UNKNOWN };
        };
        Delivered {
            event_type: claim.event_type.as_deref(),
            secret_label: Some(&secret.label),
            attempt: claim.attempt(),
            status: answered.status.map(|status| status.as_u16()),
            reason: answered.reason.as_deref(),
            body_changed: claim.is_body_changed(),
            ..Delivered::of(&claim.key)
        }
    }
}

impl Drop for OutcomeReport {
    fn drop(&mut self) {
        if !self.sent {
            let cancelled = self.event.as_ref().is_some_and(|(claim, _)| claim.has_held());
            self.send(if cancelled { &Outcome::Cancelled } else { &Outcome::Abandoned }, &Answered::default());
        }
    }
}

/// Reports a refusal before the event was known.
pub(super) fn refusal(config: &Config, rejection: &Rejection, parts: &Parts, tenant: Option<&str>) {
    let is_unverified = rejection.kind().needs_no_signature();
    if !telemetry::tells_refusals() && !telemetry::audits(is_unverified) {
        return;
    }
    let count = count(config, config.endpoint.of(parts, config.scheme.name()), rejection.kind());
    if count.is_none() && !telemetry::audits(is_unverified) {
        return;
    }
    let mut hinted = rejection.clone();
    if rejection.kind() == RejectionKind::SignatureMismatch && config.url_is_signed {
        hinted = hinted.or_detail(URL_IS_SIGNED);
    }
    let about = Delivered {
        tenant: tenant.or(rejection.tenant()).map(Shortened),
        path: Some(Shortened(route::requested_uri(parts).path())),
        is_unverified,
        ..facts_of_request(config, parts)
    };
    if let Some(count) = count {
        telemetry::refused(&hinted, &about, count);
    }
    telemetry::delivered(&Outcome::Refused(hinted), &about);
}

/// Reports that a provider has asked whether this endpoint is there.
pub(super) fn probe(config: &Config, parts: &Parts) {
    let about = Delivered { is_unverified: true, ..facts_of_request(config, parts) };
    telemetry::delivered(&Outcome::Handshake, &about);
}

/// The facts of a request whose event is not known.
fn facts_of_request<'a>(config: &'a Config, parts: &'a Parts) -> Delivered<'a> {
    let scheme = config.scheme.name();
    Delivered { endpoint: Some(config.endpoint.of(parts, scheme)), scheme: Some(scheme), ..Delivered::UNKNOWN }
}

/// Counts a refusal. Returns how many of its kind the operator is to be told of now, if it is time.
fn count(config: &Config, endpoint: &str, kind: RejectionKind) -> Option<u64> {
    kind.is_of_the_request().then(|| config.refusals.count(endpoint, kind, config.clock.monotonic()))?
}
