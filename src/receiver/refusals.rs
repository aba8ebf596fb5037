//! Which refusals an operator is told of, and how often.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry::{self, Delivered};
use crate::throttle::Throttle;

/// Counts refusals by endpoint and kind: a forger must not be able to flood the log.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Box<str>, Kinds>>);

/// The kinds of refusals of one endpoint.
type Kinds = HashMap<RejectionKind, Throttle>;

impl Refusals {
    /// Reports how many deliveries were refused in this way, if it is time.
    pub(super) fn report(&self, rejection: &Rejection, about: &Delivered<'_>, now: Instant) {
        let (Some(endpoint), true) = (about.endpoint, rejection.kind().is_of_the_request()) else { return };
        if let Some(count) = self.count(endpoint, rejection.kind(), now) {
            telemetry::refused(rejection, about, count);
        }
    }

    fn count(&self, endpoint: &str, kind: RejectionKind, now: Instant) -> Option<u64> {
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kinds) = endpoints.get_mut(endpoint) {
            return kinds.entry(kind).or_default().count(now);
        }
        endpoints.entry(endpoint.into()).or_default().entry(kind).or_default().count(now)
    }
}
