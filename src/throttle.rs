//! Messages that anyone can cause, and that must not flood the log.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a message is repeated.
const REPEAT_AFTER: Duration = Duration::from_secs(60);

/// The longest part of a text from a request that is reported.
const LONGEST: usize = 200;

/// Counts occurrences of one message, and says when to log it: the first time, then at most once a minute.
#[derive(Default)]
pub(crate) struct Throttle(Option<Count>);

struct Count {
    logged_at: Instant,
    unlogged: u64,
}

impl Throttle {
    /// Counts an occurrence. Returns how many are to be logged now: all since the message was logged last.
    pub(crate) fn count(&mut self, now: Instant) -> Option<u64> {
        let Some(count) = &mut self.0 else {
            self.0 = Some(Count { logged_at: now, unlogged: 0 });
            return Some(1);
        };
        count.unlogged += 1;
        if now.saturating_duration_since(count.logged_at) < REPEAT_AFTER {
            return None;
        }
        count.logged_at = now;
        Some(std::mem::take(&mut count.unlogged))
    }
}

/// A throttle for each kind of message of each endpoint.
pub(crate) struct Throttles<K>(Mutex<HashMap<Box<str>, HashMap<K, Throttle>>>);

impl<K: Eq + Hash> Throttles<K> {
    /// Counts an occurrence, as [`Throttle::count`] does.
    pub(crate) fn count(&self, endpoint: &str, kind: K, now: Instant) -> Option<u64> {
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kinds) = endpoints.get_mut(endpoint) {
            return kinds.entry(kind).or_default().count(now);
        }
        endpoints.entry(endpoint.into()).or_default().entry(kind).or_default().count(now)
    }
}

impl<K> Default for Throttles<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

/// A text from a request, cut to a length for the log, without control characters.
#[derive(Clone, Copy)]
pub(crate) struct Shortened<'a>(pub(crate) &'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (cut, is_cut) = match self.0.char_indices().nth(LONGEST) {
            Some((at, _)) => (&self.0[..at], true),
            None => (self.0, false),
        };
        write!(f, "{}{}", cut.escape_debug(), if is_cut { "…" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_occurrence_is_logged_and_then_a_count_each_minute() {
        let (mut throttle, begin) = (Throttle::default(), Instant::now());
        let mut at = |seconds| throttle.count(begin + Duration::from_secs(seconds));
        assert_eq!(at(0), Some(1));
        for second in 1..60 {
            assert_eq!(at(second), None);
        }
        assert_eq!(at(60), Some(60));
        assert_eq!(at(61), None);
        assert_eq!(at(200), Some(2));
    }

    #[test]
    fn logged_texts_are_short_and_plain() {
        assert_eq!(Shortened("a\nb\u{1b}").to_string(), r"a\nb\u{1b}");
        assert_eq!(Shortened(&"x".repeat(200)).to_string(), "x".repeat(200));
        assert_eq!(Shortened(&"ü".repeat(1_000)).to_string(), format!("{}…", "ü".repeat(200)));
    }
}
