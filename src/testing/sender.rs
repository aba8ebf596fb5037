use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::clock::{Clock, SystemClock};
use crate::error::ConfigError;
use crate::scheme::{Outgoing, Scheme};

/// Plays the provider: signs deliveries as the scheme's sender would, with the scheme's own secrets.
///
/// ```
/// use std::time::Duration;
/// use bytes::Bytes;
/// use http::Request;
/// use tower_webhook::{scheme, testing::TestSender};
///
/// let sender = TestSender::new(scheme::github("a secret")?).uri("/webhooks/github");
/// let event = sender.deliver(r#"{"action":"opened"}"#).id("72d3162e").event_type("pull_request");
/// let request: Request<Bytes> = event.request(); // an `axum::body::Body` does as well
/// assert_eq!(request.headers()["x-github-event"], "pull_request");
///
/// let forged: Request<Bytes> = event.tampered().request();
/// # Ok::<(), tower_webhook::ConfigError>(())
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
/// let too_old = event.clone().aged(Duration::from_secs(301)).request::<Bytes>();
/// let forged = event.clone().header("stripe-signature", "t=1,v1=00").request::<Bytes>();
/// let retry = event.request::<Bytes>(); // signed anew
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

    /// Builds the signed request.
    ///
    /// # Panics
    ///
    /// If the scheme cannot sign: its secrets come from a lookup, or are public keys, or none is active.
    #[must_use]
    pub fn request<B: From<Bytes>>(&self) -> Request<B> {
        let scheme = &self.sender.scheme;
        let secrets = scheme.secrets().current().expect("a scheme with secrets of its own to sign with");
        let mut message = self.unsigned().expect("a message with valid headers");
        scheme.sign(&mut message, &secrets).expect("a message that the scheme can sign");
        let mut request = message.request;
        request.headers_mut().extend(self.headers.clone());
        request.map(|body| B::from(if self.tampered { tamper(&body) } else { body }))
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
