use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use tower_service::Service;

use crate::clock::{Clock, SystemClock};
use crate::error::ConfigError;
use crate::scheme::{Outgoing, Scheme};

/// Plays the provider: signs deliveries as the scheme's sender would, with the scheme's own secrets. A
/// [`TestKit`](super::TestKit) has one that shares its clock with layer and store.
///
/// ```
/// use axum::{Router, routing::post};
/// use tower_webhook::{WebhookEvent, WebhookLayer, scheme, store::MemoryStore, testing::TestSender};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), tower_webhook::ConfigError> {
/// # async fn on_event(_: WebhookEvent) {}
/// let scheme = scheme::github("a secret of GitHub's")?;
/// let app: Router = Router::new()
///     .route("/webhooks/github", post(on_event))
///     .layer(WebhookLayer::new(scheme.clone(), MemoryStore::new()));
///
/// let github = TestSender::new(scheme).uri("/webhooks/github");
/// let push = github.deliver(r#"{"ref":"refs/heads/main"}"#).event_type("push");
/// assert_eq!(push.send(&app).await.status(), 200);
/// assert_eq!(push.tampered().send(&app).await.status(), 401);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TestSender {
    scheme: Arc<dyn Scheme>,
    clock: Arc<dyn Clock>,
    uri: Uri,
}

impl TestSender {
    /// Creates a sender that signs with `scheme`, at the current time, for `/webhooks`.
    pub fn new(scheme: impl Scheme) -> Self {
        Self { scheme: Arc::new(scheme), clock: Arc::new(SystemClock), uri: Uri::from_static("/webhooks") }
    }

    /// Signs at the time of this clock, which should be the layer's.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sends to this path.
    ///
    /// # Panics
    ///
    /// If `uri` is not a URI.
    #[must_use]
    pub fn uri(mut self, uri: &str) -> Self {
        self.uri = uri.parse().expect("a URI to send to");
        self
    }

    /// The path that it sends to.
    #[cfg(feature = "axum")]
    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    /// Creates a delivery of this body, which is signed when its request is built. Where the sender puts the event's id
    /// or type into a header, the delivery has a new id and no type, unless set otherwise.
    pub fn deliver(&self, body: impl Into<Bytes>) -> TestDelivery {
        let Outgoing { request, id, .. } = Outgoing::new(body);
        TestDelivery {
            sender: self.clone(),
            body: request.into_body(),
            id: Some(id),
            event_type: None,
            method: Method::POST,
            content_type: HeaderValue::from_static("application/json"),
            age: Duration::ZERO,
            tampered: false,
            headers: HeaderMap::new(),
        }
    }
}

impl fmt::Debug for TestSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestSender")
            .field("scheme", &self.scheme.name())
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

/// One delivery of an event. Every request that is built of it is signed anew, as a sender's retries are.
///
/// ```
/// use std::time::Duration;
/// use bytes::Bytes;
/// use tower_webhook::{scheme, testing::TestSender};
///
/// let event = TestSender::new(scheme::stripe("whsec_test")?).deliver(r#"{"id":"evt_1"}"#);
/// let too_old = event.clone().aged(Duration::from_secs(301)).request();
/// let forged = event.clone().header("stripe-signature", "t=1,v1=00").request();
/// let retry = event.request(); // signed anew
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct TestDelivery {
    sender: TestSender,
    body: Bytes,
    id: Option<String>,
    event_type: Option<String>,
    method: Method,
    content_type: HeaderValue,
    age: Duration,
    tampered: bool,
    headers: HeaderMap,
}

impl TestDelivery {
    /// Dates the signature this long ago.
    #[must_use]
    pub fn aged(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Sets the event's id, for senders that put it into a header or sign it beside the body.
    #[must_use]
    pub fn id(mut self, id: &str) -> Self {
        self.id = Some(id.to_owned());
        self
    }

    /// Leaves out the header that has the id, for senders that may leave it out.
    #[must_use]
    pub fn without_id(mut self) -> Self {
        self.id = None;
        self
    }

    /// Sets the event's type, for senders that put it into a header.
    #[must_use]
    pub fn event_type(mut self, event_type: &str) -> Self {
        self.event_type = Some(event_type.to_owned());
        self
    }

    /// Says that the body is a form instead of JSON.
    #[must_use]
    pub fn form(mut self) -> Self {
        self.content_type = HeaderValue::from_static("application/x-www-form-urlencoded");
        self
    }

    /// Changes a bit of the body after it was signed.
    #[must_use]
    pub fn tampered(mut self) -> Self {
        self.tampered = true;
        self
    }

    /// Sends with another method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Adds a header, or replaces one of the signature's.
    ///
    /// # Panics
    ///
    /// If that is not a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("the name of a header");
        self.headers.insert(name, value.parse().expect("the value of a header"));
        self
    }

    /// Builds the signed request, for an axum `Router` and every other service that takes any body.
    ///
    /// # Panics
    ///
    /// If the scheme cannot sign: its secrets come from a lookup, or are public keys, or none is active.
    #[must_use]
    pub fn request(&self) -> Request<Full<Bytes>> {
        self.request_as()
    }

    /// Builds the signed request with a body of another type, for a service or a client that takes no other:
    /// `request_as::<axum::body::Body>()`, or `request_as::<Bytes>()` for reqwest.
    ///
    /// # Panics
    ///
    /// As [`request`](Self::request).
    #[must_use]
    pub fn request_as<B: From<Bytes>>(&self) -> Request<B> {
        let scheme = &self.sender.scheme;
        let secrets = scheme.secrets().current().expect("a scheme with secrets of its own to sign with");
        let mut message = self.unsigned().expect("a message with valid headers");
        scheme.sign(&mut message, &secrets).expect("a message that the scheme can sign");
        let mut request = message.request;
        request.headers_mut().extend(self.headers.clone());
        request.map(|body| B::from(if self.tampered { tamper(&body) } else { body }))
    }

    /// Sends it to an axum `Router` or another service, and returns the response.
    ///
    /// # Panics
    ///
    /// If the service fails instead of answering, or the scheme cannot sign, as [`request`](Self::request) says.
    pub async fn send<S, R>(&self, service: &S) -> Response<R>
    where
        S: Service<Request<Full<Bytes>>, Response = Response<R>, Error: fmt::Debug> + Clone,
    {
        let mut service = service.clone();
        poll_fn(|cx| service.poll_ready(cx)).await.expect("a service that becomes ready");
        service.call(self.request()).await.expect("a service that answers")
    }

    /// Builds the message, before it is signed.
    fn unsigned(&self) -> Result<Outgoing, ConfigError> {
        let profile = self.sender.scheme.profile();
        let mut message = Outgoing::new(self.body.clone()).signed_at(self.signed_at());
        *message.request.method_mut() = self.method.clone();
        *message.request.uri_mut() = self.sender.uri.clone();
        message.request.headers_mut().insert(http::header::CONTENT_TYPE, self.content_type.clone());
        if let Some(id) = &self.id {
            message.id.clone_from(id);
            profile.id.header().map(|name| message.set_header(name, id)).transpose()?;
        }
        if let (Some(name), Some(event_type)) = (profile.event_type.sent_header(), &self.event_type) {
            message.set_header(name, event_type)?;
        }
        Ok(message)
    }

    fn signed_at(&self) -> SystemTime {
        self.sender.clock.now() - self.age
    }
}

/// Changes one bit of the body.
fn tamper(body: &[u8]) -> Bytes {
    let mut bytes = body.to_vec();
    match bytes.last_mut() {
        Some(last) => *last ^= 1,
        None => bytes.push(b' '),
    }
    bytes.into()
}
