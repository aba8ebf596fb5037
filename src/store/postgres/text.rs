use std::time::Duration;

/// A thousand years: no timestamp of Postgres overflows by it.
const LONGEST_MS: i64 = 1_000 * 365 * 24 * 3600 * 1_000;

/// `text` as Postgres takes it. It refuses NUL, and a reason with one in it would never be stored.
pub(super) fn storable(text: &str) -> Box<str> {
    match text.contains('\0') {
        true => text.replace('\0', "\u{fffd}").into(),
        false => text.into(),
    }
}

/// A lease or a retention in milliseconds, at least one.
pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(i64::MAX).clamp(1, LONGEST_MS)
}

/// A pause in milliseconds; none is none.
pub(super) fn pause(time: Duration) -> i64 {
    if time.is_zero() { 0 } else { milliseconds(time) }
}

/// A time in milliseconds since 1970 that no timestamp of Postgres overflows by.
pub(super) fn within_reach(unix_ms: i64) -> i64 {
    unix_ms.clamp(-LONGEST_MS, LONGEST_MS)
}
