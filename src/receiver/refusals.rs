//! Which refusals an operator is told of, and how often.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;

use super::config::Config;
use super::endpoint::requested_path;
use crate::outcome::Outcome;
use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry::{self, Delivered};
use crate::throttle::{Shortened, Throttle};

/// Counts refusals by endpoint and kind: a forger must not be able to flood the log.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Box<str>, Kinds>>);

/// Of one endpoint.
type Kinds = HashMap<RejectionKind, Arc<Throttle>>;

impl Refusals {
    fn of(&self, endpoint: &str, kind: RejectionKind) -> Arc<Throttle> {
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(throttle) = endpoints.get(endpoint).and_then(|kinds| kinds.get(&kind)) {
            return throttle.clone();
        }
        endpoints.entry(endpoint.into()).or_default().entry(kind).or_default().clone()
    }
}

impl Config {
    /// Reports a refusal before the event was known.
    pub(super) fn report_refusal(&self, rejection: &Rejection, parts: &Parts, tenant: Option<&str>) {
        if !telemetry::IS_ON {
            return;
        }
        let rejection = match rejection.kind() {
            RejectionKind::SignatureMismatch if self.url_is_signed => rejection.clone().or_detail(
                "the signature covers the url, so the public url of the scheme has to be the one that the sender calls",
            ),
            _ => rejection.clone(),
        };
        let about = Delivered {
            endpoint: Some(self.endpoint_name(parts)),
            scheme: Some(self.scheme.name()),
            tenant: tenant.or(rejection.tenant()).map(Shortened),
            path: Some(Shortened(requested_path(parts))),
            is_unverified: rejection.kind().needs_no_signature(),
            ..Delivered::UNKNOWN
        };
        self.count_refusal(&rejection, &about);
        telemetry::delivered(&Outcome::Refused(rejection.clone()), &about);
    }

    /// Reports how many deliveries were refused in this way, if it is time.
    pub(super) fn count_refusal(&self, rejection: &Rejection, about: &Delivered<'_>) {
        let (Some(endpoint), true) = (about.endpoint, rejection.kind().is_of_the_request()) else { return };
        if let Some(count) = self.refusals.of(endpoint, rejection.kind()).count(self.clock.monotonic()) {
            telemetry::refused(rejection, about, count);
        }
    }
}
