//! Deliveries whose sender hangs up.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use super::claim_state::{ClaimState, Stage};
use crate::telemetry::OuterSpan;

/// Runs a future in place, and in a task of its own from the moment at which it is dropped half-way.
///
/// A sender that hangs up, or an outer timeout, drops the response future while the handler is at work. Finishing it
/// costs nothing, and turns the sender's retry into a duplicate instead of a second run.
pub(crate) struct DetachOnDrop<T: Send + 'static> {
    running: Option<InSpan<T>>,
    claim: Arc<ClaimState>,
    enabled: bool,
}

/// A boxed future that stays in the span in which it began, wherever it is polled.
struct InSpan<T> {
    future: Pin<Box<dyn Future<Output = T> + Send>>,
    span: OuterSpan,
}

impl<T: Send + 'static> DetachOnDrop<T> {
    pub(crate) fn new(future: Pin<Box<dyn Future<Output = T> + Send>>, claim: Arc<ClaimState>, enabled: bool) -> Self {
        let span = OuterSpan::current();
        Self { running: Some(InSpan { future, span }), claim, enabled }
    }
}

impl<T: Send + 'static> Future for DetachOnDrop<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Some(running) = &mut self.running else { return Poll::Pending };
        let output = Pin::new(running).poll(cx);
        if output.is_ready() {
            self.running = None;
        }
        output
    }
}

impl<T> Future for InSpan<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let Self { future, span } = &mut *self;
        span.in_scope(|| future.as_mut().poll(cx))
    }
}

impl<T: Send + 'static> Drop for DetachOnDrop<T> {
    fn drop(&mut self) {
        let Some(running) = self.running.take() else { return };
        let unfinished = self.enabled && self.claim.is_at(Stage::Unfinished);
        if unfinished || self.claim.is_at(Stage::Settling) {
            // The inner future is spawned, not this wrapper: a runtime that is shutting down drops it again at once,
            // and that drop must not spawn a second time.
            in_background(running);
        }
    }
}

/// Runs a future that a `Drop` cannot await. Best effort: without a runtime it is dropped, and leases end by
/// themselves.
pub(super) fn in_background(future: impl Future<Output: Send> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(future);
    }
}
