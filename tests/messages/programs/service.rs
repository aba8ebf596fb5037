//~ cannot handle events
//~ because the layer has read and verified the whole body
//~ a closure becomes one with `tower::service_fn`

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{Request, Response};
use tower::{Layer, Service};
use tower_webhook::WebhookLayer;

/// Takes the body that servers give, and the layer has read it.
#[derive(Clone)]
struct Streaming;

impl Service<Request<Body>> for Streaming {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(request.into_body())))
    }
}

pub fn service(layer: &WebhookLayer) {
    let _service = layer.layer(Streaming);
}
