//! What a handler's response means for its event.

use std::borrow::Cow;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, Response, StatusCode};

use crate::handler::Failure;
use crate::machine::{Record, Verdict};
use crate::store::erased::Setback;

/// Which statuses complete an event.
pub(crate) type Completes = dyn Fn(StatusCode) -> bool + Send + Sync;

/// What the handler said goes before what its status suggests.
pub(crate) fn judge<R>(completes: &Completes, response: &Response<R>) -> Verdict {
    let status = response.status();
    match response.extensions().get::<Failure>() {
        Some(failure) if failure.is_permanent() => {
            Verdict::Complete(Record { failed: true, summary: Cow::Owned(failure.reason().to_owned()) })
        }
        Some(failure) => {
            let retry_after = failure.retry_after().or_else(|| retry_after(response.headers()));
            let reason = Cow::Owned(failure.reason().to_owned());
            Verdict::Release(Some(Setback { reason, retry_after, called: true }))
        }
        None if completes(status) => {
            let summary = Cow::Borrowed(status.canonical_reason().unwrap_or("completed"));
            Verdict::Complete(Record { failed: false, summary })
        }
        None => {
            let reason = Cow::Owned(format!("the handler answered {status}"));
            Verdict::Release(Some(Setback { reason, retry_after: retry_after(response.headers()), called: true }))
        }
    }
}

/// In seconds; a date, which HTTP allows too, nobody sends to itself.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setback(response: &Response<()>) -> Setback {
        match judge(&|status| status.is_success(), response) {
            Verdict::Release(Some(setback)) => setback,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn retry_after_is_taken_from_the_failure_or_else_from_the_header() {
        let mut response = Response::builder().status(429).header(RETRY_AFTER, "30").body(()).expect("a response");
        let expected = Setback {
            reason: "the handler answered 429 Too Many Requests".into(),
            retry_after: Some(Duration::from_secs(30)),
            called: true,
        };
        assert_eq!(setback(&response), expected);

        response.extensions_mut().insert(Failure::transient("busy"));
        assert_eq!(setback(&response).retry_after, Some(Duration::from_secs(30)));
        let failure = crate::HandlerError::transient("busy").retry_after(Duration::from_secs(7));
        response.extensions_mut().insert(failure.failure().clone());
        let expected = Setback { retry_after: Some(Duration::from_secs(7)), ..Setback::new("busy") };
        assert_eq!(setback(&response), expected);
    }

    #[test]
    fn a_date_is_no_time_to_wait() {
        let response = Response::builder().status(503).header(RETRY_AFTER, "Wed, 21 Oct 2026 07:28:00 GMT");
        assert_eq!(setback(&response.body(()).expect("a response")).retry_after, None);
    }
}
