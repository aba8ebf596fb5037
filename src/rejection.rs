//! Refusals, with their details for the operator and their status for the sender.
//!
//! Every delivery that fails verification gets the same 401, or the status that the scheme's sender expects instead.
//! The reason is in the response's extensions, inside [`Outcome`](crate::Outcome), where an outer layer can count it,
//! and in the `tracing` event. Neither reaches the sender.
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

/// A refusal sent to the caller: its kind, and the details that an operator needs to act on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    kind: RejectionKind,
    detail: Detail,
    seconds: u64,
}

/// A detail for the operator beside the kind.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Detail {
    None,
    /// A hint that does not depend on the request.
    Fixed(&'static str),
    /// The same, formatted when the scheme was built.
    Built(Arc<str>),
    /// The name that the request gives as its tenant's, which no tenant has.
    Tenant(Box<str>),
}

impl Rejection {
    /// Creates a refusal without details.
    #[must_use]
    pub const fn new(kind: RejectionKind) -> Self {
        Self { kind, detail: Detail::None, seconds: 0 }
    }

    /// Creates a refusal with a hint for the operator, which must not depend on the request's contents.
    #[must_use]
    pub const fn with_detail(kind: RejectionKind, detail: &'static str) -> Self {
        Self { kind, detail: Detail::Fixed(detail), seconds: 0 }
    }

    /// Creates a refusal of a proof that cannot be read, for this reason.
    pub(crate) const fn malformed(detail: &'static str) -> Self {
        Self::with_detail(RejectionKind::MalformedSignature, detail)
    }

    /// Adds a hint that was formatted when the scheme was built, unless the refusal has one.
    pub(crate) fn with_hint(mut self, hint: &Arc<str>) -> Self {
        if matches!(self.detail, Detail::None) {
            self.detail = Detail::Built(hint.clone());
        }
        self
    }

    /// Adds a hint, unless the refusal has one.
    pub(crate) fn or_detail(mut self, detail: &'static str) -> Self {
        if matches!(self.detail, Detail::None) {
            self.detail = Detail::Fixed(detail);
        }
        self
    }

    /// Creates a refusal of a request that names a tenant which does not exist.
    pub(crate) fn unknown_tenant(name: &str) -> Self {
        Self { kind: RejectionKind::UnknownTenant, detail: Detail::Tenant(name.into()), seconds: 0 }
    }

    /// The tenant that the request names, if it was refused because there is no such tenant.
    pub(crate) fn tenant(&self) -> Option<&str> {
        match &self.detail {
            Detail::Tenant(name) => Some(name),
            _ => None,
        }
    }

    /// Creates a refusal of a timestamp that is this many seconds too old.
    #[must_use]
    pub const fn stale(seconds: u64) -> Self {
        Self { kind: RejectionKind::Stale, detail: Detail::None, seconds }
    }

    /// Creates a refusal of a timestamp that is this many seconds too far in the future.
    #[must_use]
    pub const fn early(seconds: u64) -> Self {
        Self { kind: RejectionKind::Early, detail: Detail::None, seconds }
    }

    /// The kind of the refusal.
    #[must_use]
    pub const fn kind(&self) -> RejectionKind {
        self.kind
    }

    /// By how many seconds a timestamp is outside the tolerance.
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
            // The tenant is a field of its own in telemetry, where it is shortened.
            Detail::None | Detail::Tenant(_) => Ok(()),
            Detail::Fixed(detail) => write!(f, ": {detail}"),
            Detail::Built(detail) => write!(f, ": {detail}"),
        }
    }
}

impl std::error::Error for Rejection {}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal, $status:ident, $text:literal;)*) => {
        /// The kind of a refusal. The name of each kind is a stable label for metrics.
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

            /// The status that the sender gets, unless its scheme or the layer sets another.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            /// Whether anyone can cause the refusal, without a valid signature.
            pub(crate) const fn needs_no_signature(self) -> bool {
                use RejectionKind as Kind;
                match self {
                    Kind::MissingSignature | Kind::MalformedSignature | Kind::RepeatedSignature => true,
                    Kind::UnsupportedSignature | Kind::Stale | Kind::Early | Kind::SignatureMismatch => true,
                    Kind::NoActiveSecret | Kind::UnknownTenant | Kind::HandshakeRefused => true,
                    Kind::MethodNotAllowed | Kind::BodyTooLarge | Kind::BodyTooSlow | Kind::BodyIncomplete => true,
                    Kind::UnsupportedEncoding | Kind::SecretsUnavailable => true,
                    Kind::Replayed | Kind::MalformedBody | Kind::InvalidId | Kind::BodyChanged | Kind::Busy => false,
                    Kind::TooManyWaiting | Kind::Backlogged | Kind::Draining | Kind::InFlight => false,
                    Kind::FirstFailed | Kind::ClaimLost | Kind::StoreUnavailable => false,
                }
            }

            /// Whether the request itself is to blame, and not the state of the receiver or of the event.
            pub(crate) const fn is_of_the_request(self) -> bool {
                use RejectionKind as Kind;
                let is_misread =
                    matches!(self, Kind::MalformedBody | Kind::InvalidId | Kind::BodyChanged | Kind::Replayed);
                is_misread || (self.needs_no_signature() && !matches!(self, Kind::SecretsUnavailable))
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
        "no signature matches any active secret: the secret is another one, or the body was altered on its way";
    /// Every secret of this route has expired.
    NoActiveSecret = "no_active_secret", UNAUTHORIZED, "every secret has expired: install a new one";
    /// The request names no tenant, or one that the lookup does not know.
    UnknownTenant = "unknown_tenant", UNAUTHORIZED, "no such tenant";
    /// The endpoint does not answer this validation request of a provider.
    HandshakeRefused = "handshake_refused", FORBIDDEN,
        "the validation request has a wrong verify token, or no usable challenge";
    /// The body was seen before under another, unsigned id, and the replay guard refuses that.
    Replayed = "replayed", UNAUTHORIZED, "the body was delivered before under another id";
    /// This route does not accept the method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "the method is not accepted here";
    /// The body is larger than the limit.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE, "the body is larger than the limit";
    /// The body did not arrive within its deadline.
    BodyTooSlow = "body_too_slow", REQUEST_TIMEOUT, "the body did not arrive within its deadline";
    /// The body ended early or could not be read.
    BodyIncomplete = "body_incomplete", BAD_REQUEST, "the body could not be read to its end";
    /// The body has a content encoding: the signed bytes are not those that would be handled.
    UnsupportedEncoding = "unsupported_encoding", UNSUPPORTED_MEDIA_TYPE, "the body has a content encoding";
    /// The id cannot be read from the signed body.
    MalformedBody = "malformed_body", BAD_REQUEST, "the body cannot be parsed";
    /// The event has no usable id.
    InvalidId = "invalid_id", BAD_REQUEST, "the event has no usable id";
    /// The id was seen before with another body, and the policy refuses that.
    BodyChanged = "body_changed", CONFLICT, "the id was delivered before with another body";
    /// The limit of running deliveries is reached, or the inner service was not ready in time.
    Busy = "busy", SERVICE_UNAVAILABLE,
        "max_running deliveries are running, or the service was not ready within ready_wait";
    /// The limit of waiting duplicates is reached.
    TooManyWaiting = "too_many_waiting", SERVICE_UNAVAILABLE, "the limit of waiting duplicates is reached";
    /// The limit of waiting events in the inbox is reached.
    Backlogged = "backlogged", SERVICE_UNAVAILABLE, "the limit of waiting events in the inbox is reached";
    /// The receiver is shutting down.
    Draining = "draining", SERVICE_UNAVAILABLE, "the receiver is draining";
    /// The first delivery of this event is still running.
    InFlight = "in_flight", SERVICE_UNAVAILABLE, "the first delivery of this event is still running";
    /// The first delivery of this event failed while this one waited for it.
    FirstFailed = "first_failed", SERVICE_UNAVAILABLE, "the first delivery of this event failed";
    /// Another delivery took over the claim while the handler ran.
    ClaimLost = "claim_lost", SERVICE_UNAVAILABLE, "the claim was taken over while the handler ran";
    /// The store is unavailable.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE, "the store is unavailable";
    /// The secrets could not be looked up.
    SecretsUnavailable = "secrets_unavailable", SERVICE_UNAVAILABLE, "the secrets could not be looked up";
}
