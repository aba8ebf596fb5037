use std::fmt;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Method, Request, Uri};
use tower_webhook::scheme::{self, Head, Tolerance};

use crate::schemes::{Given, scheme};

/// One delivery and how the receiver is set up.
#[derive(Clone)]
pub struct Case {
    pub provider: &'static str,
    pub secrets: Vec<String>,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
    /// The endpoint's, as the sender knows it.
    pub url: String,
    /// The receiver's clock, in unix seconds.
    pub now: u64,
    /// In seconds; without it timestamps are not checked.
    pub tolerance: Option<u64>,
    /// How it was made, for whoever reads a failure.
    pub story: Vec<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    Reject(String),
}

impl Verdict {
    pub fn of<T, E: fmt::Debug>(result: Result<T, E>) -> Self {
        match result {
            Ok(_) => Self::Accept,
            Err(error) => Self::Reject(format!("{error:?}")),
        }
    }

    pub fn accepts(&self) -> bool {
        *self == Self::Accept
    }

    /// Whether this is what `expected` names: `accept`, or how the reason begins.
    pub fn is(&self, expected: &str) -> bool {
        match self {
            Self::Accept => expected == "accept",
            Self::Reject(why) => why.starts_with(expected),
        }
    }
}

impl Case {
    /// Our verdict. A rejection is called by its kind, and secrets that do not build are `config`.
    pub fn ours(&self) -> Verdict {
        let tolerance =
            self.tolerance.map_or(Tolerance::InsecureUnchecked, |seconds| Duration::from_secs(seconds).into());
        let given = Given {
            secrets: self.secrets.clone(),
            tolerance: Some(tolerance),
            url: Some(self.url.clone()),
            verify_token: None,
        };
        let Ok(scheme) = scheme(self.provider, given) else { return Verdict::Reject("config".to_owned()) };
        let (mut parts, ()) = Request::new(()).into_parts();
        parts.method = Method::POST;
        parts.uri = self.request_uri();
        parts.headers = self.headers.clone();
        let head = Head::new(&parts, self.time());
        match now_or_never(scheme::verify(&*scheme, &head, &self.body)) {
            Ok(_) => Verdict::Accept,
            Err(rejection) => Verdict::Reject(rejection.kind().as_str().to_owned()),
        }
    }

    pub fn time(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.now)
    }

    /// What the request line says: the path and the query.
    fn request_uri(&self) -> Uri {
        let uri: Uri = self.url.parse().expect("a url");
        uri.path_and_query().expect("a path").as_str().parse().expect("a path")
    }
}

/// Nothing here waits: secrets are at hand.
fn now_or_never<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("verifying waited for something"),
    }
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Case")
            .field("provider", &self.provider)
            .field("story", &self.story)
            .field("secrets", &self.secrets)
            .field("headers", &self.headers)
            .field("body", &String::from_utf8_lossy(&self.body))
            .field("url", &self.url)
            .field("now", &self.now)
            .field("tolerance", &self.tolerance)
            .finish()
    }
}
