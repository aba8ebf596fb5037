//! How work is to be settled, and what a handler's response means for its event.

use std::borrow::Cow;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};

use crate::handler::Failure;
use crate::store::Completion;

/// How work is to be settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The event is not to be run again.
    Complete(CompletionRecord),
    /// The event is to be run again, when the sender delivers it again or the queue's retry is due. Without a reason
    /// the attempt does not count.
    Release(Option<RetryReason>),
}

/// The record of work that is done, or was given up for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompletionRecord {
    pub(crate) failed: bool,
    pub(crate) summary: Cow<'static, str>,
}

impl CompletionRecord {
    pub(super) fn completion(&self, retention: Duration) -> Completion<'_> {
        Completion { failed: self.failed, summary: &self.summary, retention }
    }
}

/// Why an event has to be run again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RetryReason {
    pub(crate) reason: Cow<'static, str>,
    /// The shortest pause that the handler asked for.
    pub(crate) retry_after: Option<Duration>,
    /// Whether the handler was called. An event whose handler was not called is never given up.
    pub(crate) called: bool,
}

impl RetryReason {
    pub(crate) const fn new(reason: &'static str) -> Self {
        Self { reason: Cow::Borrowed(reason), retry_after: None, called: true }
    }

    /// The work failed before the handler was called.
    pub(crate) const fn before_the_call(reason: &'static str) -> Self {
        Self { reason: Cow::Borrowed(reason), retry_after: None, called: false }
    }
}

/// Says which statuses complete an event.
pub(crate) type CompletesFn = dyn Fn(StatusCode) -> bool + Send + Sync;

/// Decides from the handler's response how the event is settled. A [`Failure`] takes precedence over the status.
pub(crate) fn verdict_of<R>(completes: &CompletesFn, response: &Response<R>) -> Verdict {
    let status = response.status();
    match response.extensions().get::<Failure>() {
        Some(failure) if failure.is_permanent() => {
            Verdict::Complete(CompletionRecord { failed: true, summary: Cow::Owned(failure.reason().to_owned()) })
        }
        Some(failure) => {
            let retry_after = failure.retry_after().or_else(|| retry_after(response.headers()));
            let reason = Cow::Owned(failure.reason().to_owned());
            Verdict::Release(Some(RetryReason { reason, retry_after, called: true }))
        }
        None if completes(status) => {
            let summary = Cow::Borrowed(status.canonical_reason().unwrap_or("completed"));
            Verdict::Complete(CompletionRecord { failed: false, summary })
        }
        None => {
            let reason = Cow::Owned(format!("the handler answered {status}"));
            Verdict::Release(Some(RetryReason { reason, retry_after: retry_after(response.headers()), called: true }))
        }
    }
}

/// Reads `Retry-After` in seconds. A handler has no reason to send a date, which HTTP allows too.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry_reason(response: &Response<()>) -> RetryReason {
        match verdict_of(&|status| status.is_success(), response) {
            Verdict::Release(Some(reason)) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn retry_after_is_taken_from_the_failure_or_else_from_the_header() {
        let mut response = Response::builder().status(429).header(RETRY_AFTER, "30").body(()).expect("a response");
        let expected = RetryReason {
            reason: "the handler answered 429 Too Many Requests".into(),
            retry_after: Some(Duration::from_secs(30)),
            called: true,
        };
        assert_eq!(retry_reason(&response), expected);

        response.extensions_mut().insert(Failure::transient("busy"));
        assert_eq!(retry_reason(&response).retry_after, Some(Duration::from_secs(30)));
        let failure = crate::HandlerError::transient("busy").retry_after(Duration::from_secs(7));
        response.extensions_mut().insert(failure.failure().clone());
        let expected = RetryReason { retry_after: Some(Duration::from_secs(7)), ..RetryReason::new("busy") };
        assert_eq!(retry_reason(&response), expected);
    }

    #[test]
    fn a_date_is_no_time_to_wait() {
        let response = Response::builder().status(503).header(RETRY_AFTER, "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(retry_reason(&response.body(()).expect("a response")).retry_after, None);
    }
}
