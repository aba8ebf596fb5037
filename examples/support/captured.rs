//! Judges captured deliveries: what `verify` does, without the reading and printing.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::request::Parts;
use http::{HeaderName, HeaderValue, Request};
use serde::{Deserialize, Deserializer};
use tower_webhook::rejection::{Rejection, RejectionKind};
use tower_webhook::scheme::{self, Diagnosis, Finding, Head, Scheme, Tolerance};

use super::demo;
use super::schemes::{Given, SchemeError, scheme};

/// One delivery, as it was captured.
#[derive(Clone, Deserialize)]
pub(crate) struct Captured {
    pub(crate) provider: String,
    pub(crate) name: String,
    pub(crate) secret: String,
    pub(crate) headers: BTreeMap<String, String>,
    /// Headers that came more than once, which an object cannot hold.
    #[serde(default)]
    pub(crate) extra_headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// The receiver's clock, in unix seconds, if it is not now; it only matters where timestamps are checked.
    pub(crate) now: Option<u64>,
    /// In seconds. `null` does not check the timestamp; without the field, the provider's default holds.
    #[serde(default, deserialize_with = "seconds_or_unchecked")]
    pub(crate) tolerance: Option<Tolerance>,
    #[serde(default = "post")]
    pub(crate) method: String,
    /// Where it was sent to, for schemes that sign it.
    pub(crate) url: Option<String>,
    /// `accept` or `reject:<why>`, for `--check`.
    pub(crate) expect: Option<String>,
    /// Says that official SDKs disagree about this one, so that `expect` does not bind.
    pub(crate) policy: Option<String>,
}

/// What became of a delivery.
#[derive(Debug)]
pub(crate) enum Verdict {
    Accept,
    Reject { kind: &'static str, hint: String },
}

impl Verdict {
    /// Whether both accept or both reject; why is not compared, since everyone names the reasons differently.
    pub(crate) fn agrees_with(&self, expected: &str) -> bool {
        match self {
            Self::Accept => expected == "accept",
            Self::Reject { .. } => expected == "reject" || expected.starts_with("reject:"),
        }
    }

    /// What an operator can do about it.
    pub(crate) fn hint(&self) -> Option<&str> {
        match self {
            Self::Accept => None,
            Self::Reject { hint, .. } => Some(hint),
        }
    }

    fn reject(kind: &'static str, hint: impl fmt::Display) -> Self {
        Self::Reject { kind, hint: hint.to_string() }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept => f.write_str("accept"),
            Self::Reject { kind, .. } => write!(f, "reject:{kind}"),
        }
    }
}

impl Captured {
    /// Verifies the signature, and only that: the body need not be JSON.
    pub(crate) async fn judge(&self) -> Verdict {
        let scheme = match self.scheme(vec![self.secret.clone()]) {
            Ok(scheme) => scheme,
            Err(error @ SchemeError::Unknown(_)) => return Verdict::reject("unknown_scheme", error),
            Err(SchemeError::Config(error)) => {
                let hint = self.misspelt_secret().await.unwrap_or_else(|| error.to_string());
                return Verdict::reject("bad_secret", hint);
            }
        };
        let diagnosis = match self.diagnose(&*scheme).await {
            Ok(diagnosis) => diagnosis,
            Err(error) => return Verdict::reject("malformed_request", error),
        };
        match diagnosis.rejection().map(Rejection::kind) {
            None => Verdict::Accept,
            Some(kind @ RejectionKind::SignatureMismatch) if self.url.is_none() && scheme.signs().contains("{url}") => {
                Verdict::reject(kind.as_str(), "the url is signed: say where it was sent to, with `url` or --url")
            }
            Some(kind) => Verdict::reject(kind.as_str(), diagnosis),
        }
    }

    /// What is wrong with a secret that the scheme does not take, if the delivery shows it.
    async fn misspelt_secret(&self) -> Option<String> {
        // The scheme needs some secret to be built with.
        let scheme = self.scheme(demo::secrets(&[], self.scheme_name())).ok()?;
        let diagnosis = self.diagnose(&*scheme).await.ok()?;
        let is_about_the_secret = |finding: &Finding| matches!(finding, Finding::MisspeltSecret { .. });
        diagnosis.findings().iter().find(|finding| is_about_the_secret(finding)).map(Finding::to_string)
    }

    fn scheme(&self, secrets: Vec<String>) -> Result<Arc<dyn Scheme>, SchemeError> {
        let given = Given { secrets, tolerance: self.tolerance, url: Some(self.url().to_owned()), verify_token: None };
        scheme(self.scheme_name(), given)
    }

    /// Two providers sign in several ways. A receiver accepts one of them; of a captured delivery its headers tell which it was.
    fn scheme_name(&self) -> &str {
        match &*self.provider {
            "adyen" if self.header("hmacsignature").is_some() => "adyen-banking",
            // HubSpot sends its signature along with the older ones, and only that one has a timestamp.
            "hubspot" if self.header("x-hubspot-signature-v3").is_some() => "hubspot",
            "hubspot" => match self.header("x-hubspot-signature-version") {
                Some("v1") => "hubspot-v1",
                Some("v2") => "hubspot-v2",
                _ => "hubspot",
            },
            provider => provider,
        }
    }

    fn header(&self, wanted: &str) -> Option<&str> {
        self.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| &**value)
    }

    /// Fails if what was captured cannot have been an HTTP request.
    async fn diagnose(&self, scheme: &dyn Scheme) -> Result<Diagnosis, Box<dyn Error>> {
        let parts = self.parts()?;
        let now = self.now().ok_or("`now` is beyond all times")?;
        Ok(scheme::diagnose(scheme, &Head::new(&parts, now), self.body.as_bytes(), &*self.secret).await)
    }

    fn now(&self) -> Option<SystemTime> {
        match self.now {
            Some(seconds) => UNIX_EPOCH.checked_add(Duration::from_secs(seconds)),
            None => Some(SystemTime::now()),
        }
    }

    fn url(&self) -> &str {
        self.url.as_deref().unwrap_or("https://receiver.example/")
    }

    fn parts(&self) -> Result<Parts, http::Error> {
        let mut request = Request::builder().method(self.method.as_str()).uri(self.url());
        let extra = self.extra_headers.iter().map(|(name, value)| (name, value));
        for (name, value) in self.headers.iter().chain(extra) {
            // Bytes, because a captured value may be more than the visible ASCII that a `str` would have to be.
            request = request.header(name.parse::<HeaderName>()?, HeaderValue::from_bytes(value.as_bytes())?);
        }
        Ok(request.body(())?.into_parts().0)
    }
}

fn seconds_or_unchecked<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Tolerance>, D::Error> {
    let seconds = Option::<u64>::deserialize(deserializer)?;
    Ok(Some(seconds.map_or(Tolerance::InsecureUnchecked, |seconds| Duration::from_secs(seconds).into())))
}

fn post() -> String {
    "POST".to_owned()
}
