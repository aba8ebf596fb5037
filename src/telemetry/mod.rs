//! Telemetry for operators. `traced` is the only file that names `tracing`; without the feature every function here is
//! empty.
//!
//! No function takes a body, a header or a secret, so none of them can be logged.

use crate::EventKey;
use crate::throttle::Shortened;

/// The facts of a delivery that are reported beside its outcome.
#[cfg_attr(not(feature = "tracing"), expect(dead_code))]
pub(crate) struct Delivered<'a> {
    pub(crate) endpoint: Option<&'a str>,
    pub(crate) scheme: Option<&'a str>,
    pub(crate) tenant: Option<Shortened<'a>>,
    /// Of a refused request.
    pub(crate) path: Option<Shortened<'a>>,
    pub(crate) id: Option<&'a str>,
    pub(crate) event_type: Option<&'a str>,
    pub(crate) secret_label: Option<&'a str>,
    pub(crate) attempt: Option<u32>,
    /// The status of the handler's answer.
    pub(crate) status: Option<u16>,
    pub(crate) reason: Option<&'a str>,
    /// The store knows the id with another body.
    pub(crate) body_changed: bool,
    /// Whether the request may be anybody's, since its signature was not verified.
    pub(crate) is_unverified: bool,
}

impl<'a> Delivered<'a> {
    /// A delivery that ended before its event was known.
    pub(crate) const UNKNOWN: Self = Self {
        endpoint: None,
        scheme: None,
        tenant: None,
        path: None,
        id: None,
        event_type: None,
        secret_label: None,
        attempt: None,
        status: None,
        reason: None,
        body_changed: false,
        is_unverified: false,
    };

    /// A delivery of this event.
    pub(crate) fn of(key: &'a EventKey) -> Self {
        let (tenant, id) = (key.tenant().map(Shortened), Some(key.id()));
        Self { endpoint: Some(key.endpoint()), tenant, id, ..Self::UNKNOWN }
    }
}

#[cfg(not(feature = "tracing"))]
mod silent;
#[cfg(feature = "tracing")]
mod traced;

#[cfg(not(feature = "tracing"))]
pub(crate) use self::silent::*;
#[cfg(feature = "tracing")]
pub(crate) use self::traced::*;
