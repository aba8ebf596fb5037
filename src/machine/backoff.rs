use std::time::Duration;

use crate::random;

/// Pauses that double up to the longest, each cut by up to half at random, so that those who wait do not come back at once.
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, longest }
    }

    pub(super) async fn pause(&mut self) {
        let pause = self.next.mul_f64(0.5 + random::fraction() / 2.0);
        self.next = (self.next * 2).min(self.longest);
        tokio::time::sleep(pause).await;
    }
}
