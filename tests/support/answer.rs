//! What a sender gets.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyExt;
use tower_webhook::Outcome;
use tower_webhook::rejection::RejectionKind;

/// A response, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) outcome: Option<Outcome>,
}

impl Answer {
    pub(crate) async fn read(response: Response<Body>) -> Self {
        let (parts, body) = response.into_parts();
        let outcome = parts.extensions.get().cloned();
        let body = body.collect().await.expect("a body").to_bytes();
        Self { status: parts.status, headers: parts.headers, body, outcome }
    }

    pub(crate) fn rejection(&self) -> Option<RejectionKind> {
        self.outcome.as_ref()?.rejection().map(tower_webhook::rejection::Rejection::kind)
    }

    pub(crate) fn retry_after(&self) -> Option<&str> {
        self.headers.get("retry-after")?.to_str().ok()
    }
}
