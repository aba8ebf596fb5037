//! Deadlines, pauses, and the first of two futures.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Sleep;

use crate::store::{StoreError, StoreErrorKind};
use crate::{EventKey, random, telemetry};

/// A deadline whose timer starts at the first poll. Work that is ready at once starts none.
#[derive(Debug)]
pub(crate) struct Deadline {
    after: Duration,
    armed: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    pub(crate) fn after(after: Duration) -> Self {
        Self { after, armed: None }
    }

    /// Ready once the time is over, counted from the first call.
    pub(crate) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let after = self.after;
        self.armed.get_or_insert_with(|| Box::pin(tokio::time::sleep(after))).as_mut().poll(cx)
    }
}

/// Awaits `future`; `None` if it is not ready in time.
pub(crate) async fn within<F: Future>(after: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut deadline = Deadline::after(after);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => deadline.poll_over(cx).map(|()| None),
    })
    .await
}

/// Waits for `work` or for `stop`, whichever is ready first. `stop` is created when `work` is pending at its first
/// poll: work that is ready at once does not pay for it.
pub(super) async fn unless<T, S>(mut work: Pin<&mut impl Future<Output = T>>, stop: impl FnOnce() -> S) -> T
where
    S: Future<Output = T>,
{
    let mut stop = Some(stop);
    let mut stopping = None;
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Pending => {
            if let Some(begin) = stop.take() {
                stopping = Some(Box::pin(begin()));
            }
            stopping.as_mut().map_or(Poll::Pending, |stopping| stopping.as_mut().poll(cx))
        }
        ready => ready,
    })
    .await
}

/// Awaits whichever of two futures is ready first. `first` is polled first.
pub(crate) async fn either<T>(first: impl Future<Output = T>, second: impl Future<Output = T>) -> T {
    let (mut first, mut second) = (pin!(first), pin!(second));
    poll_fn(|cx| match first.as_mut().poll(cx) {
        Poll::Pending => second.as_mut().poll(cx),
        ready => ready,
    })
    .await
}

/// Awaits a store's answer within the deadline. `None`, and a word to the operator, if the store could not be asked:
/// whether the verb took effect is then unknown.
pub(crate) async fn ask<T>(
    verb: &str,
    key: &EventKey,
    deadline: Duration,
    answer: impl Future<Output = Result<T, StoreError>>,
) -> Option<T> {
    let answer = within(deadline, answer).await.unwrap_or_else(|| Err(StoreError::new(StoreErrorKind::TimedOut)));
    answer.inspect_err(|error| telemetry::store_failed(verb, key, error)).ok()
}

/// Pauses that double up to the longest. Each is cut by up to half at random, so that callers who failed together do
/// not come back together.
pub(super) struct Backoff {
    next: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) const fn new([first, longest]: [Duration; 2]) -> Self {
        Self { next: first, longest }
    }

    pub(super) async fn pause(&mut self) {
        let pause = self.next.mul_f64(0.5 + random::fraction() / 2.0);
        self.next = (self.next * 2).min(self.longest);
        tokio::time::sleep(pause).await;
    }
}
