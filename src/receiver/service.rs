use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::Full;
use tower_service::Service;

use super::answer::AnswerBody;
use super::config::Config;
use super::delivery::Delivery;
use super::explainer::RefusedDelivery;
use super::future::ResponseFuture;
use crate::WebhookEvent;
use crate::handler::EventService;
use crate::head::Head;
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::Proof;

/// The inner service behind a [`WebhookLayer`](super::WebhookLayer).
///
/// The request of a [`Worker`](crate::Worker) passes through: its event was verified when it was accepted, and the worker
/// settles it. Any other request is a delivery.
///
/// It takes requests with any body, and hands the inner service the signed bytes as a [`Full`]. It is always ready: the
/// inner service's readiness is asked for after verification, so that no forged request can hold a place in it.
#[derive(Clone)]
pub struct WebhookService<S> {
    inner: S,
    config: Arc<Config>,
}

impl<S> WebhookService<S> {
    pub(super) fn new(inner: S, config: Arc<Config>) -> Self {
        Self { inner, config }
    }
}

impl<S, B> Service<Request<B>> for WebhookService<S>
where
    S: EventService,
    B: Body + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<AnswerBody<S::ResponseBody>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B, S::ResponseBody>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        if let Some(event) = parts.extensions.get::<WebhookEvent>().filter(|event| event.is_stored()) {
            let body = Full::new(event.body().clone());
            return ResponseFuture::passing_on(self.inner.clone(), Request::from_parts(parts, body));
        }
        let now = self.config.clock.now();
        let head = Head::new(&parts, now);
        if !self.config.methods.contains(&parts.method) {
            return ResponseFuture::answered(self.config.answer_other_method(&head));
        }
        let proof = match check_head(&self.config, &head, &parts, &body) {
            Ok(proof) => proof,
            Err(rejection) => return ResponseFuture::answered(refuse_head(&self.config, rejection, parts, now)),
        };
        let (inner, config) = (self.inner.clone(), self.config.clone());
        // The box is allocated first, so that the delivery is built in place.
        let mut delivery = Box::write(Box::new_uninit(), Delivery::new(parts, now, inner, config));
        match delivery.begin(proof) {
            Ok(()) => ResponseFuture::collecting(body, delivery),
            Err(rejection) => ResponseFuture::answered(delivery.refuse(rejection)),
        }
    }
}

/// Checks everything that the head alone shows, before a byte of the body is read.
fn check_head(config: &Config, head: &Head<'_>, parts: &Parts, body: &impl Body) -> Result<Proof, Rejection> {
    let proof = config.scheme.read(head)?;
    proof.check()?;
    if announced_length(parts, body) > config.body_limit as u64 {
        return Err(RejectionKind::BodyTooLarge.into());
    }
    let encoded = |value: &http::HeaderValue| !value.as_bytes().eq_ignore_ascii_case(b"identity");
    if parts.headers.get_all(CONTENT_ENCODING).iter().any(encoded) {
        return Err(RejectionKind::UnsupportedEncoding.into());
    }
    Ok(proof)
}

/// Refuses a delivery whose body is not read.
fn refuse_head<B>(
    config: &Arc<Config>,
    rejection: Rejection,
    parts: Parts,
    received_at: SystemTime,
) -> Response<AnswerBody<B>> {
    if config.explainer.is_none() {
        return config.refuse_and_report(rejection, &parts);
    }
    let answer = config.refuse_and_report(rejection.clone(), &parts);
    config.explain(RefusedDelivery { rejection, parts, received_at, body: None });
    answer
}

/// The length of the body that the head or the body itself announces, at least.
fn announced_length(parts: &Parts, body: &impl Body) -> u64 {
    let header = parts.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
    header.unwrap_or(0).max(body.size_hint().lower())
}

impl<S: fmt::Debug> fmt::Debug for WebhookService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookService").field("inner", &self.inner).finish_non_exhaustive()
    }
}
