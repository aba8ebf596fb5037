use std::time::Duration;

use crate::clock::LONGEST;
use crate::random;

/// When a failed event is retried, and how often.
///
/// The pauses double from `first_pause` to `longest_pause`. Each is cut to a random part of itself (full jitter), so
/// that events that failed together do not come back together. If the handler gives a `Retry-After`, the pause is at
/// least that long.
///
/// An attempt counts from its lease on, so that an event that crashes the process is given up in the end. Other events
/// of the same lease lose an attempt, too, but never the last one: that is only used up once the handler was called,
/// which costs the inbox one more write.
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::worker::RetryPolicy;
///
/// // Five attempts within about a minute, then a dead letter.
/// let policy = RetryPolicy::new().max_attempts(5).first_pause(Duration::from_secs(2)).longest_pause(Duration::from_secs(20));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    max_attempts: u32,
    first_pause: Duration,
    longest_pause: Duration,
}

impl RetryPolicy {
    /// Twenty attempts, the first pause up to five seconds, the longest up to an hour: about five hours in all.
    #[must_use]
    pub const fn new() -> Self {
        Self { max_attempts: 20, first_pause: Duration::from_secs(5), longest_pause: Duration::from_secs(3600) }
    }

    /// Sets how often an event is tried before it becomes a dead letter. Zero counts as one.
    #[must_use]
    pub const fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = if attempts == 0 { 1 } else { attempts };
        self
    }

    /// Sets the upper limit of the first pause.
    #[must_use]
    pub const fn first_pause(mut self, pause: Duration) -> Self {
        self.first_pause = pause;
        self
    }

    /// Sets the upper limit of all pauses, unless the handler asks for a longer one.
    #[must_use]
    pub const fn longest_pause(mut self, pause: Duration) -> Self {
        self.longest_pause = pause;
        self
    }

    /// Whether an event that fails in this attempt is not retried.
    pub(crate) const fn is_last(&self, attempt: u32) -> bool {
        attempt >= self.max_attempts
    }

    /// Whether this attempt exceeds the limit, because earlier ones were never settled.
    pub(crate) const fn is_beyond(&self, attempt: u32) -> bool {
        attempt > self.max_attempts
    }

    pub(crate) fn pause(&self, attempt: u32, retry_after: Option<Duration>) -> Duration {
        let doubled = 2u32.saturating_pow(attempt.saturating_sub(1));
        let longest = self.first_pause.saturating_mul(doubled).min(self.longest_pause).min(LONGEST);
        longest.mul_f64(random::fraction()).max(retry_after.unwrap_or_default()).min(LONGEST)
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_are_spread_over_their_whole_length() {
        let policy = RetryPolicy::new().first_pause(Duration::from_secs(1)).longest_pause(Duration::from_secs(60));
        for (attempt, longest) in [(1, 1), (2, 2), (4, 8), (7, 60), (50, 60), (u32::MAX, 60)] {
            let longest = Duration::from_secs(longest);
            let pauses: Vec<_> = (0..1_000).map(|_| policy.pause(attempt, None)).collect();
            assert!(pauses.iter().all(|pause| *pause < longest), "{attempt}");
            assert!(
                pauses.iter().any(|pause| *pause < longest / 10)
                    && pauses.iter().any(|pause| *pause > longest / 10 * 9)
            );
        }
    }

    #[test]
    fn what_the_handler_asks_for_is_waited_for() {
        let asked = Duration::from_secs(7_200);
        assert_eq!(RetryPolicy::new().pause(1, Some(asked)), asked);
        assert_eq!(RetryPolicy::new().pause(1, Some(Duration::MAX)), LONGEST);
    }

    #[test]
    fn no_pause_is_longer_than_can_be_counted_with() {
        let policy = RetryPolicy::new().first_pause(Duration::MAX).longest_pause(Duration::MAX);
        assert!((1..1_000).all(|attempt| policy.pause(attempt, None) <= LONGEST));
    }

    #[test]
    fn there_is_always_one_attempt() {
        let policy = RetryPolicy::new().max_attempts(0);
        assert!(policy.is_last(1) && !policy.is_beyond(1) && policy.is_beyond(2));
    }
}
