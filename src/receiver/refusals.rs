//! Which refusals an operator is told of, and how often.

use std::time::Instant;

use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry::{self, Delivered};
use crate::throttle::Throttles;

/// Counts refusals by endpoint and kind: a forger must not be able to flood the log.
#[derive(Default)]
pub(super) struct Refusals(Throttles<RejectionKind>);

impl Refusals {
    /// Reports how many deliveries were refused in this way, if it is time.
    pub(super) fn report(&self, rejection: &Rejection, about: &Delivered<'_>, now: Instant) {
        let (Some(endpoint), true) = (about.endpoint, rejection.kind().is_of_the_request()) else { return };
        if let Some(count) = self.0.count(endpoint, rejection.kind(), now) {
            telemetry::refused(rejection, about, count);
        }
    }
}
