//! How a handler reports the kind of its failure.
//!
//! *Transient* failures release the claim: the sender's retry runs again. *Permanent* failures answer the sender with
//! 200, so that it stops, and are remembered with their reason. An error returned with `?` is transient. So is any
//! response but a 2xx that has no [`Failure`] in its extensions.
//!
//! ```
//! use tower_webhook::{HandlerError, WebhookEvent};
//!
//! async fn on_event(event: WebhookEvent) -> Result<(), HandlerError> {
//!     let text = std::str::from_utf8(event.body())?; // any error: transient
//!     if !text.contains("invoice") {
//!         return Err(HandlerError::permanent("not an invoice: no retry will make it one"));
//!     }
//!     Ok(())
//! }
//! ```
//!
//! A plain tower service reports the same with a [`Failure`] in the extensions of its response.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tower_service::Service;

use crate::EventKey;
use crate::error::with_causes;

/// Reasons are cut to this many bytes: they go into stores and on dashboards.
const MAX_REASON: usize = 512;

/// A handler's failure, transient or permanent.
///
/// It does not itself implement [`std::error::Error`], so that `?` can convert every error into it.
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::HandlerError;
///
/// fn charge(amount: &str) -> Result<u64, HandlerError> {
///     let amount: u64 = amount.parse()?; // any error is transient: the event runs again
///     if amount == 0 {
///         return Err(HandlerError::permanent("nothing to charge")); // 200, remembered as failed
///     }
///     if amount > 1_000 {
///         return Err(HandlerError::transient("over today's limit").retry_after(Duration::from_secs(3600)));
///     }
///     Ok(amount)
/// }
/// assert!(charge("0").is_err_and(|error| error.failure().is_permanent()));
/// ```
#[derive(Clone)]
pub struct HandlerError(Failure);

/// The failure of a handler, in the extensions of its response.
///
/// ```
/// use http::{Response, StatusCode};
/// use tower_webhook::handler::Failure;
///
/// /// The answer of a plain tower service: the layer answers 200 in its place, and the store remembers the reason.
/// fn give_up(reason: &str) -> Response<String> {
///     let mut response = Response::default();
///     *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
///     response.extensions_mut().insert(Failure::permanent(reason));
///     response
/// }
/// # give_up("no such customer");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    permanent: bool,
    reason: Arc<str>,
    retry_after: Option<Duration>,
}

/// An event whose handler failed permanently, as told to the hook of a layer
/// ([`WebhookLayer::on_permanent`](crate::WebhookLayer::on_permanent)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct PermanentFailure<'a> {
    /// The key of the event.
    pub key: &'a EventKey,
    /// The event's type.
    pub event_type: Option<&'a str>,
    /// How often the event has been claimed, where the store counts.
    pub attempt: Option<u32>,
    /// Why, in the handler's own words: the crate cannot tell whether they hold anything secret.
    pub reason: &'a str,
}

impl HandlerError {
    /// Creates an error after which a retry may succeed. The sender gets a 5xx, and the claim is released.
    pub fn transient(reason: impl fmt::Display) -> Self {
        Self(Failure::transient(reason))
    }

    /// Creates an error after which no retry will succeed. The sender gets 200, and the event is remembered as failed
    /// for this reason.
    pub fn permanent(reason: impl fmt::Display) -> Self {
        Self(Failure::permanent(reason))
    }

    /// Asks the sender, or the inbox, not to retry before this time has passed.
    #[must_use]
    pub fn retry_after(mut self, time: Duration) -> Self {
        self.0.retry_after = Some(time);
        self
    }

    pub(crate) const fn from_failure(failure: Failure) -> Self {
        Self(failure)
    }

    /// The failure: its reason, and whether it is permanent.
    #[must_use]
    pub const fn failure(&self) -> &Failure {
        &self.0
    }
}

impl Failure {
    /// Creates a failure after which a retry may succeed.
    pub fn transient(reason: impl fmt::Display) -> Self {
        Self { permanent: false, reason: capped(reason.to_string()), retry_after: None }
    }

    /// Creates a failure after which no retry will succeed.
    pub fn permanent(reason: impl fmt::Display) -> Self {
        Self { permanent: true, reason: capped(reason.to_string()), retry_after: None }
    }

    /// Whether retrying is pointless.
    #[must_use]
    pub const fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The reason, in at most 512 bytes. It is for operators; the sender never sees it.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// How long to wait before a retry, if the handler knows.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for HandlerError {
    /// Creates a transient error. The reason includes the error's causes.
    fn from(error: E) -> Self {
        Self::transient(with_causes(&*error.into()))
    }
}

impl<B: Default> From<HandlerError> for Response<B> {
    /// Creates a 500, or a 503 with `Retry-After`, whose extensions carry the [`Failure`]. The response does not reveal
    /// the reason.
    fn from(error: HandlerError) -> Self {
        let mut response = Response::new(B::default());
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        if let Some(time) = error.0.retry_after {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(time.as_secs().max(1)));
        }
        response.extensions_mut().insert(error.0);
        response
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.reason)
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandlerError").field(&self.0).finish()
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("permanent", &self.permanent)
            .field("reason", &self.reason)
            .finish_non_exhaustive()
    }
}

/// A service that handles events: what a [`WebhookLayer`](crate::WebhookLayer) is put around, and what a
/// [`Worker`](crate::Worker) runs. An axum `Router` with its state is one.
///
/// Every tower service with these bounds has this trait. It cannot be implemented otherwise.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot handle events",
    label = "expected a service for a `WebhookLayer` or a `Worker` to call",
    note = "it must implement `tower::Service<http::Request<http_body_util::Full<bytes::Bytes>>>` with a `http::Response<_>`, because the layer has read and verified the whole body, and `Clone + Send + 'static`; its future and its error must be `Send`",
    note = "an axum `Router` is such a service once it has its state: `router.with_state(state)`",
    note = "a closure becomes one with `tower::service_fn`, if it takes that request: `|request: http::Request<http_body_util::Full<bytes::Bytes>>|`"
)]
pub trait EventService:
    Service<
        Request<Full<Bytes>>,
        Response = Response<<Self as EventService>::ResponseBody>,
        Error: Send + 'static,
        Future: Send,
    > + Clone
    + Send
    + 'static
{
    /// The body of its responses.
    type ResponseBody: Send + 'static;
}

// Otherwise the compiler complains of the first bound that does not hold, in place of the text above.
#[diagnostic::do_not_recommend]
impl<S, R> EventService for S
where
    S: Service<Request<Full<Bytes>>, Response = Response<R>> + Clone + Send + 'static,
    S::Error: Send + 'static,
    S::Future: Send,
    R: Send + 'static,
{
    type ResponseBody = R;
}

fn capped(mut reason: String) -> Arc<str> {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    reason.truncate(end);
    reason.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_cut_between_characters() {
        let error = HandlerError::permanent("é".repeat(300) + "x");
        assert_eq!(error.failure().reason().len(), 512);
        let odd = HandlerError::permanent(format!("a{}", "é".repeat(300)));
        assert_eq!(odd.failure().reason().len(), 511);
    }

    #[test]
    fn question_mark_takes_whatever_a_boxed_error_takes() {
        fn boxed() -> Result<(), HandlerError> {
            Err(Box::<dyn Error + Send + Sync>::from("boxed"))?;
            Ok(())
        }
        fn text() -> Result<(), HandlerError> {
            Err("text")?;
            Ok(())
        }
        fn own() -> Result<(), HandlerError> {
            Err(HandlerError::permanent("kept"))?;
            Ok(())
        }
        assert!(!boxed().expect_err("fails").failure().is_permanent());
        assert_eq!(text().expect_err("fails").to_string(), "text");
        assert!(own().expect_err("fails").failure().is_permanent());
    }

    #[test]
    fn any_error_is_transient_and_keeps_its_causes() {
        #[derive(Debug)]
        struct Outer(std::num::ParseIntError);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cannot read the amount")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = HandlerError::from(Outer("x".parse::<u8>().expect_err("no number")));
        assert!(!error.failure().is_permanent());
        assert_eq!(error.to_string(), "cannot read the amount: invalid digit found in string");
    }
}
