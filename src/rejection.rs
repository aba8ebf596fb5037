//! Refusals: what the operator learns of them, and what the sender does.
//!
//! Everything that failed verification gets one and the same 401, or what the scheme's sender wants instead. The reason is in the response's extensions, inside
//! [`Outcome`](crate::Outcome), where an outer layer can count it, and in the `tracing` event; neither reaches the sender.
//!
//! ```
//! use http::StatusCode;
//! use tower_webhook::rejection::RejectionKind;
//!
//! assert_eq!(RejectionKind::Stale.status(), StatusCode::UNAUTHORIZED);
//! assert_eq!(RejectionKind::Stale.as_str(), "stale");
//! ```

use std::fmt;
use std::sync::Arc;

use http::StatusCode;

/// A refusal sent to the caller: its kind, and what an operator needs to act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    kind: RejectionKind,
    detail: Detail,
    seconds: u64,
}

/// A hint for the operator, which never depends on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    Fixed(&'static str),
    /// Written when the scheme was built.
    Built(Arc<str>),
}

impl Rejection {
    /// A refusal that needs no further words.
    #[must_use]
    pub const fn new(kind: RejectionKind) -> Self {
        Self { kind, detail: Detail::Fixed(""), seconds: 0 }
    }

    /// A refusal with a hint for the operator, which must not depend on the request's contents.
    #[must_use]
    pub const fn with_detail(kind: RejectionKind, detail: &'static str) -> Self {
        Self { kind, detail: Detail::Fixed(detail), seconds: 0 }
    }

    /// The proof cannot be read, and this is why.
    pub(crate) const fn malformed(detail: &'static str) -> Self {
        Self::with_detail(RejectionKind::MalformedSignature, detail)
    }

    /// The same refusal with a hint that was written when the scheme was built, unless it has one.
    pub(crate) fn with_hint(mut self, hint: &Arc<str>) -> Self {
        if self.detail == Detail::Fixed("") {
            self.detail = Detail::Built(hint.clone());
        }
        self
    }

    /// The timestamp is this many seconds too old.
    #[must_use]
    pub const fn stale(seconds: u64) -> Self {
        Self { kind: RejectionKind::Stale, detail: Detail::Fixed(""), seconds }
    }

    /// The timestamp is this many seconds too far in the future.
    #[must_use]
    pub const fn early(seconds: u64) -> Self {
        Self { kind: RejectionKind::Early, detail: Detail::Fixed(""), seconds }
    }

    /// What was refused.
    #[must_use]
    pub const fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// By how much a timestamp missed the tolerance.
    #[must_use]
    pub const fn seconds_outside(&self) -> Option<u64> {
        match self.kind {
            RejectionKind::Stale | RejectionKind::Early => Some(self.seconds),
            _ => None,
        }
    }
}

impl From<RejectionKind> for Rejection {
    fn from(kind: RejectionKind) -> Self {
        Self::new(kind)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.explanation())?;
        if let Some(seconds) = self.seconds_outside() {
            write!(f, ", by {seconds} s: check both clocks, or raise the tolerance")?;
        }
        match &self.detail {
            Detail::Fixed("") => Ok(()),
            Detail::Fixed(detail) => write!(f, ": {detail}"),
            Detail::Built(detail) => write!(f, ": {detail}"),
        }
    }
}

impl std::error::Error for Rejection {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $status:ident, $text:literal;)*) => {
        /// What was refused. The name of each is a stable label for metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum RejectionKind {
            $($(#[$doc])* $kind,)*
        }

        impl RejectionKind {
            /// The stable, lower-case name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The status that the sender gets, where neither its scheme nor the layer says otherwise.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            const fn explanation(self) -> &'static str {
                match self { $(Self::$kind => $text,)* }
            }
        }
    };
}

kinds! {
    /// The signature header is absent or empty.
    MissingSignature = "missing_signature", UNAUTHORIZED, "a header of the signature is missing";
    /// The signature header cannot be read.
    MalformedSignature = "malformed_signature", UNAUTHORIZED, "the signature header is malformed";
    /// The signature header came more than once.
    RepeatedSignature = "repeated_signature", UNAUTHORIZED, "a header of the signature was sent more than once";
    /// The header is well formed but has no signature of a version that this scheme accepts.
    UnsupportedSignature = "unsupported_signature", UNAUTHORIZED, "no signature of a supported version";
    /// The signed timestamp is older than the tolerance allows.
    Stale = "stale", UNAUTHORIZED, "the timestamp is too old";
    /// The signed timestamp is further in the future than the tolerance allows.
    Early = "early", UNAUTHORIZED, "the timestamp is in the future";
    /// No signature matched under any active secret.
    SignatureMismatch = "signature_mismatch", UNAUTHORIZED,
        "no signature matches any active secret: wrong secret, another public url than the sender's where that is signed, or \
        the body was altered on its way";
    /// Every secret of this route has expired.
    NoActiveSecret = "no_active_secret", UNAUTHORIZED, "every secret has expired: install a new one";
    /// The request names no tenant, or one that the lookup does not know.
    UnknownTenant = "unknown_tenant", UNAUTHORIZED, "no such tenant";
    /// A provider's validation request that this endpoint does not answer.
    HandshakeRefused = "handshake_refused", FORBIDDEN, "the validation request has another verify token, or no usable challenge";
    /// The body was seen before under another id that nobody signed, and the replay guard refuses that.
    Replayed = "replayed", UNAUTHORIZED, "the body was delivered before under another id";
    /// Not a method that this route accepts.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "the method is not accepted here";
    /// The body is larger than the cap.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "the body is larger than the limit";
    /// The body did not arrive within its deadline.
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT, "the body did not arrive within its deadline";
    /// The body ended early or could not be read.
    BodyIncomplete = "body_incomplete", BAD_REQUEST, "the body could not be read to its end";
    /// The body has a content encoding: what was signed is not what would be handled.
    UnsupportedEncoding = "unsupported_encoding", UNSUPPORTED_MEDIA_TYPE, "the body has a content encoding";
    /// The signed body is not what the id is read from.
    MalformedBody = "malformed_body", BAD_REQUEST, "the body cannot be parsed";
    /// The event has no usable id.
    InvalidId = "invalid_id", BAD_REQUEST, "the event has no usable id";
    /// The id was seen before with other bytes, and the policy refuses that.
    BodyChanged = "body_changed", CONFLICT, "the id was delivered before with another body";
    /// As many deliveries as allowed are running.
    Busy = "busy", SERVICE_UNAVAILABLE, "as many deliveries are running as max_running allows";
    /// As many duplicates as allowed are waiting.
    TooManyWaiting = "too_many_waiting", SERVICE_UNAVAILABLE, "as many duplicates are waiting as allowed";
    /// As many events as allowed are waiting in the inbox.
    Backlogged = "backlogged", SERVICE_UNAVAILABLE, "as many events are waiting in the inbox as allowed";
    /// The receiver is shutting down.
    Draining = "draining", SERVICE_UNAVAILABLE, "the receiver is draining";
    /// The first delivery of this event is still running.
    InFlight = "in_flight", SERVICE_UNAVAILABLE, "the first delivery of this event is still running";
    /// The first delivery of this event failed while this one waited for it.
    FirstFailed = "first_failed", SERVICE_UNAVAILABLE, "the first delivery of this event failed";
    /// The claim was taken over by another delivery while the handler ran.
    ClaimLost = "claim_lost", SERVICE_UNAVAILABLE, "the claim was taken over while the handler ran";
    /// The store could not be asked.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "the store could not be asked";
    /// The secrets could not be looked up.
    SecretsUnavailable = "secrets_unavailable", SERVICE_UNAVAILABLE, "the secrets could not be looked up";
}
