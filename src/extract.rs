//! The event as an axum extractor, and its rejection.

use std::fmt;

use axum_core::extract::{FromRequestParts, OptionalFromRequestParts};
use axum_core::response::{IntoResponse, Response};
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use crate::event::WebhookEvent;
use crate::handler::{Failure, HandlerError};

/// The reason why a [`WebhookEvent`] could not be extracted.
#[derive(Debug)]
#[non_exhaustive]
pub enum EventRejection {
    /// The request has no event, because its route lacks the layer. The status is 500, since the sender is not to
    /// blame.
    MissingLayer,
    /// The body is not of the type that the handler requires. The status is 422 and the claim is released, since a
    /// deploy can fix it before the sender gives up.
    Mismatch {
        /// The line of the body at which parsing failed. The parser's own message is left out, since it quotes the
        /// body.
        line: usize,
        /// The column at which parsing failed.
        column: usize,
    },
}

impl fmt::Display for EventRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MissingLayer => "no WebhookEvent in the request: add WebhookLayer to this route",
            Self::Mismatch { .. } => "the event's body does not have the form that the handler asks for",
        })
    }
}

impl std::error::Error for EventRejection {}

impl IntoResponse for EventRejection {
    fn into_response(self) -> Response {
        match &self {
            Self::MissingLayer => (StatusCode::INTERNAL_SERVER_ERROR, self.to_string()).into_response(),
            Self::Mismatch { line, column } => {
                let mut response = (StatusCode::UNPROCESSABLE_ENTITY, self.to_string()).into_response();
                let reason = format!("{self}, at line {line} column {column}");
                response.extensions_mut().insert(Failure::transient(reason));
                response
            }
        }
    }
}

impl<S: Sync> FromRequestParts<S> for WebhookEvent {
    type Rejection = EventRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, EventRejection> {
        parts.extensions.get::<WebhookEvent>().cloned().ok_or(EventRejection::MissingLayer)
    }
}

impl<S: Sync, T: DeserializeOwned> FromRequestParts<S> for WebhookEvent<T> {
    type Rejection = EventRejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, EventRejection> {
        let event = <WebhookEvent as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        let data = serde_json::from_slice(event.body())
            .map_err(|error| EventRejection::Mismatch { line: error.line(), column: error.column() })?;
        Ok(event.with_data(data))
    }
}

impl<S: Sync> OptionalFromRequestParts<S> for WebhookEvent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Self::Rejection> {
        Ok(parts.extensions.get::<WebhookEvent>().cloned())
    }
}

impl IntoResponse for HandlerError {
    fn into_response(self) -> Response {
        self.into()
    }
}
