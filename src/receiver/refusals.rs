//! Which refusals an operator is told of, and how often.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::request::Parts;

use super::config::Config;
use super::endpoint::requested_path;
use crate::outcome::Outcome;
use crate::rejection::{Rejection, RejectionKind};
use crate::telemetry::{self, Delivered};

/// How often a kind of refusal is reported again.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// The longest part of a path or of a tenant's name that is reported.
const LONGEST_REPORTED: usize = 200;

/// Counts the refusals that anyone can cause, by endpoint and kind: a forger must not be able to flood the log.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Box<str>, HashMap<RejectionKind, Count>>>);

struct Count {
    reported_at: Instant,
    unreported: u64,
}

impl Refusals {
    /// Counts a refusal. Returns how many are to be reported now: the first one of its kind, and later, once a minute,
    /// all since the last report.
    fn count(&self, endpoint: &str, kind: RejectionKind, now: Instant) -> Option<u64> {
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !endpoints.contains_key(endpoint) {
            endpoints.insert(endpoint.into(), HashMap::new());
        }
        let kinds = endpoints.get_mut(endpoint)?;
        let Some(count) = kinds.get_mut(&kind) else {
            kinds.insert(kind, Count { reported_at: now, unreported: 0 });
            return Some(1);
        };
        count.unreported += 1;
        if now.saturating_duration_since(count.reported_at) < REPORT_EVERY {
            return None;
        }
        count.reported_at = now;
        Some(std::mem::take(&mut count.unreported))
    }
}

impl Config {
    /// Reports a refusal before the event was known.
    pub(super) fn report_refusal(&self, rejection: &Rejection, parts: &Parts, tenant: Option<&str>) {
        if !telemetry::is_enabled() {
            return;
        }
        let rejection = match rejection.kind() {
            RejectionKind::SignatureMismatch if self.url_is_signed => rejection.clone().or_detail(
                "the signature covers the url, so the public url of the scheme has to be the one that the sender calls",
            ),
            _ => rejection.clone(),
        };
        let tenant = tenant.or(rejection.tenant()).map(shortened);
        let path = shortened(requested_path(parts));
        let about = Delivered {
            endpoint: Some(self.endpoint_name(parts)),
            scheme: Some(self.scheme.name()),
            tenant: tenant.as_deref(),
            path: Some(&path),
            ..Delivered::UNKNOWN
        };
        let endpoint = self.endpoint_name(parts);
        if rejection.kind().needs_no_signature()
            && rejection.kind() != RejectionKind::MissingSignature
            && let Some(count) = self.refusals.count(endpoint, rejection.kind(), self.clock.monotonic())
        {
            telemetry::refused(&rejection, &about, count);
        }
        telemetry::delivered(&Outcome::Refused(rejection), &about);
    }
}

/// The text without control characters, and not too long for a line of the log.
fn shortened(text: &str) -> String {
    let mut escaped: String = text.chars().take(LONGEST_REPORTED).flat_map(char::escape_debug).collect();
    if text.chars().nth(LONGEST_REPORTED).is_some() {
        escaped.push('…');
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_refusal_of_a_kind_is_reported_and_then_a_count_each_minute() {
        let (refusals, begin) = (Refusals::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mismatch = |endpoint, seconds| refusals.count(endpoint, RejectionKind::SignatureMismatch, at(seconds));
        assert_eq!(mismatch("/a", 0), Some(1));
        for second in 1..60 {
            assert_eq!(mismatch("/a", second), None);
        }
        assert_eq!(mismatch("/b", 30), Some(1), "another endpoint");
        assert_eq!(refusals.count("/a", RejectionKind::Stale, at(30)), Some(1), "another kind");
        assert_eq!(mismatch("/a", 60), Some(60));
        assert_eq!(mismatch("/a", 61), None);
        assert_eq!(mismatch("/a", 200), Some(2));
    }

    #[test]
    fn reported_texts_are_short_and_plain() {
        assert_eq!(shortened("a\nb\u{1b}"), r"a\nb\u{1b}");
        assert_eq!(shortened(&"x".repeat(200)), "x".repeat(200));
        assert_eq!(shortened(&"ü".repeat(1_000)), format!("{}…", "ü".repeat(200)));
    }
}
