//! The telemetry without the feature `tracing`: it does nothing.

use std::error::Error;
use std::time::Duration;

use super::Delivered;
use crate::EventKey;
use crate::outcome::{AttemptOutcome, Outcome};
use crate::rejection::Rejection;

pub(crate) const IS_ON: bool = false;

pub(crate) struct OuterSpan;

impl OuterSpan {
    pub(crate) fn current() -> Self {
        Self
    }

    pub(crate) fn in_scope<T>(&self, run: impl FnOnce() -> T) -> T {
        run()
    }
}

pub(crate) struct DeliverySpan;

impl DeliverySpan {
    pub(crate) fn new(_: &EventKey, _: Option<&str>) -> Self {
        Self
    }

    pub(crate) fn in_scope<T>(&self, run: impl FnOnce() -> T) -> T {
        run()
    }
}

pub(crate) const fn audits(_: bool) -> bool {
    false
}

pub(crate) const fn tells_refusals() -> bool {
    false
}

pub(crate) fn delivered(_: &Outcome, _: &Delivered<'_>) {}
pub(crate) fn refused(_: &Rejection, _: &Delivered<'_>, _: u64) {}
pub(crate) fn diagnosed(_: &str, _: &dyn std::fmt::Display, _: &Delivered<'_>) {}
pub(crate) fn answered_late(_: Duration, _: Duration, _: &Delivered<'_>, _: u64) {}
pub(crate) fn body_under_two_ids(_: &EventKey, _: &str, _: bool, _: u64) {}
pub(crate) fn attempted(_: AttemptOutcome, _: &Delivered<'_>) {}
pub(crate) fn lease_failed(_: &(dyn Error + 'static)) {}
pub(crate) fn store_failed(_: &str, _: &EventKey, _: &(dyn Error + 'static)) {}
pub(crate) fn claim_lost(_: &EventKey) {}
pub(crate) fn handler_blocked(_: &EventKey) {}
pub(crate) fn settled_late(_: &EventKey) {}
pub(crate) fn settlement_refused(_: &EventKey) {}
pub(crate) fn settlement_given_up(_: &EventKey) {}
pub(crate) fn drained(_: usize) {}
pub(crate) fn store_filling(_: usize, _: usize) {}
pub(crate) fn inbox_filling(_: usize, _: usize) {}
pub(crate) fn circuit_opened(_: u32, _: Duration) {}
pub(crate) fn circuit_reopened(_: Duration) {}
pub(crate) fn circuit_probed() {}
pub(crate) fn circuit_closed() {}
pub(crate) fn fallback_claimed(_: &EventKey) {}
pub(crate) fn fallback_full(_: usize) {}
pub(crate) fn fallback_conflict(_: &EventKey, _: impl std::fmt::Display, _: &str) {}
pub(crate) fn fallback_reconciled() {}
#[cfg(feature = "redis")]
pub(crate) fn redis_connection_lost(_: &(dyn Error + 'static)) {}
#[cfg(feature = "redis")]
pub(crate) fn redis_claims_by_script() {}
#[cfg(feature = "redis")]
pub(crate) fn redis_warned(_: &str) {}
#[cfg(feature = "postgres")]
pub(crate) fn postgres_warned(_: &str) {}
#[cfg(feature = "sqlite")]
pub(crate) fn sqlite_warned(_: &str) {}
#[cfg(feature = "redis")]
pub(crate) fn redis_event_given_up(_: &str, _: &str) {}
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn event_unreadable(_: impl std::fmt::Display, _: &(dyn Error + 'static)) {}
#[cfg_attr(not(feature = "postgres"), expect(dead_code))]
pub(crate) fn batch_retried(_: &str) {}
#[cfg_attr(not(feature = "postgres"), expect(dead_code))]
pub(crate) fn purged(_: u64) {}
#[cfg_attr(not(feature = "postgres"), expect(dead_code))]
pub(crate) fn purge_failed(_: &(dyn Error + 'static)) {}
pub(crate) fn lookup_failed(_: &str, _: &(dyn Error + 'static), _: u64) {}
#[cfg(feature = "axum")]
pub(crate) fn missing_layer(_: &str, _: u64) {}
pub(crate) fn endpoint_name_shared(_: &str) {}
pub(crate) fn retention_too_short(_: Duration, _: Duration) {}
