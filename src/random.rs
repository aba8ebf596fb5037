//! Random bits for claim tokens and jitter, without a system call per delivery.

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// A pseudo-random function, under a key that the standard library takes from the operating system.
static FUNCTION: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The start of this process's counter. Another process is unlikely to start anywhere near it.
static START: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Returns 128 bits that no other call returns, in this process or another.
pub(crate) fn bits() -> u128 {
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    // The counter alone is unique in this process. The function's value distinguishes processes whose counters overlap.
    let (high, low) = (START.wrapping_add(count), FUNCTION.hash_one(count));
    u128::from(high) << 64 | u128::from(low)
}

/// A number in `[0, 1)`.
pub(crate) fn fraction() -> f64 {
    // An f64 holds 53 bits exactly.
    (bits() as u64 >> 11) as f64 / (1u64 << 53) as f64
}
