use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri};

use crate::clock::{Clock, SystemClock};
use crate::scheme::{Outgoing, Scheme};

/// Plays the provider: signs deliveries as the scheme's sender would, with the scheme's own secrets.
#[derive(Clone)]
pub struct TestSender {
    scheme: Arc<dyn Scheme>,
    clock: Arc<dyn Clock>,
    uri: Uri,
}

impl TestSender {
    /// Signs with `scheme`, now, for `/webhooks`.
    pub fn new(scheme: impl Scheme) -> Self {
        Self { scheme: Arc::new(scheme), clock: Arc::new(SystemClock), uri: Uri::from_static("/webhooks") }
    }

    /// Signs at the time of this clock: the one that the layer was given.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Sends to this path.
    ///
    /// # Panics
    /// When it is not a URI.
    #[must_use]
    pub fn uri(mut self, uri: &str) -> Self {
        self.uri = uri.parse().expect("a URI to send to");
        self
    }

    /// A delivery of this body, signed when the request is made of it.
    pub fn deliver(&self, body: impl Into<Bytes>) -> TestDelivery {
        TestDelivery {
            sender: self.clone(),
            body: body.into(),
            method: Method::POST,
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

/// One delivery of an event. Every request that is made of it is signed anew, as a sender's retries are.
#[derive(Clone, Debug)]
pub struct TestDelivery {
    sender: TestSender,
    body: Bytes,
    method: Method,
    age: Duration,
    tampered: bool,
    headers: HeaderMap,
}

impl TestDelivery {
    /// Signed this long ago.
    #[must_use]
    pub fn aged(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Changes a bit of the body after it was signed.
    #[must_use]
    pub fn tampered(mut self) -> Self {
        self.tampered = true;
        self
    }

    /// Sent with another method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// Adds a header, or replaces one of the signature's.
    ///
    /// # Panics
    /// When that is not a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        let name: HeaderName = name.parse().expect("the name of a header");
        self.headers.insert(name, value.parse().expect("the value of a header"));
        self
    }

    /// The headers that carry the signature.
    ///
    /// # Panics
    /// When the scheme cannot sign: its secrets come from a lookup, or none is active.
    #[must_use]
    pub fn signature(&self) -> HeaderMap {
        let scheme = &self.sender.scheme;
        let secrets = scheme.secrets().current().expect("a scheme with secrets of its own to sign with");
        let message = Outgoing::new(&self.body).signed_at(self.signed_at());
        scheme.sign(&message, &secrets).expect("a message that the scheme can sign")
    }

    /// The signed request.
    ///
    /// # Panics
    /// As [`TestDelivery::signature`].
    #[must_use]
    pub fn request<B: From<Bytes>>(&self) -> Request<B> {
        let mut request = Request::new(B::from(self.sent_body()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.sender.uri.clone();
        *request.headers_mut() = self.signature();
        request.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        request.headers_mut().extend(self.headers.clone());
        request
    }

    fn signed_at(&self) -> SystemTime {
        self.sender.clock.now() - self.age
    }

    fn sent_body(&self) -> Bytes {
        if !self.tampered {
            return self.body.clone();
        }
        let mut bytes = self.body.to_vec();
        match bytes.last_mut() {
            Some(last) => *last ^= 1,
            None => bytes.push(b' '),
        }
        bytes.into()
    }
}
