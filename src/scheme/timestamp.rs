use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::Tolerance;
use crate::rejection::Rejection;

/// What a timestamp counts since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
}

impl Unit {
    pub(super) fn write(self, unix_millis: u128) -> String {
        match self {
            Self::Seconds => (unix_millis / 1_000).to_string(),
            Self::Millis => unix_millis.to_string(),
        }
    }

    /// When this text says that it was signed.
    pub(super) fn read(self, text: &[u8], tolerance: Tolerance, now: SystemTime) -> Result<SystemTime, Rejection> {
        let time = self.parse(text).ok_or(self.malformed())?;
        tolerance.check(time.as_secs(), now)?;
        UNIX_EPOCH.checked_add(time).ok_or(self.malformed())
    }

    /// Whether an unchecked timestamp may read like this: a whole number, and one of today's length where `exact`.
    pub(super) fn is_shaped(self, text: &[u8], exact: bool) -> bool {
        let today = if self == Self::Seconds { 10 } else { 13 };
        let digits = if exact { text } else { text.strip_prefix(b"-").unwrap_or(text) };
        let length = if exact { today..=today } else { 1..=15 };
        length.contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
    }

    /// Digits only and no leading zero: the MAC covers the text, so one moment must have one spelling. Twelve digits of
    /// seconds reach beyond the year 30000.
    fn parse(self, text: &[u8]) -> Option<Duration> {
        let longest = if self == Self::Seconds { 12 } else { 15 };
        let canonical = (1..=longest).contains(&text.len()) && (text[0] != b'0' || text.len() == 1);
        if !canonical || !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let number = text.iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
        Some(if self == Self::Seconds { Duration::from_secs(number) } else { Duration::from_millis(number) })
    }

    const fn malformed(self) -> Rejection {
        let detail = match self {
            Self::Seconds => "the timestamp is not a number of unix seconds; milliseconds are not",
            Self::Millis => "the timestamp is not a number of unix milliseconds",
        };
        Rejection::malformed(detail)
    }
}
