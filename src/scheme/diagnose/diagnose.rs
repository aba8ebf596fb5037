use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::request::Parts;
use http::uri::PathAndQuery;

use super::bodies;
use super::diagnosis::Diagnosis;
use super::finding::{Finding, UrlPart};
use super::json::Json;
use super::keys::{Keys, Origin};
use super::suspects::{SuspectedKey, Suspects};
use super::urls::{UrlParts, other_paths};
use crate::head::Head;
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::Scheme;
use crate::scheme::verifying::{verify, verify_under};
use crate::secrets::{Found, Key, SecretSet};

/// Finds out why a delivery does not verify, by undoing the usual accidents one after the other: a wrong or misspelt
/// secret, an altered body, a URL that a proxy changed, a clock that is off.
///
/// The scheme's own secrets are known as keys only. To find slips such as white space around a secret, or that
/// the secret of another endpoint or mode was installed, pass their texts as `suspects`; without any, pass
/// [`Suspects::none`].
///
/// This is for support pages, tests and the command line. It verifies the delivery up to some hundred times, which takes
/// a while for a large body, so it does not belong where anyone can cause it. The layer diagnoses refused
/// deliveries within limits, with [`explain_refusals`](crate::WebhookLayer::explain_refusals). The result holds no
/// secret, no signature and no body. It is still not for the sender.
///
/// ```
/// use std::time::SystemTime;
/// use bytes::Bytes;
/// use tower_webhook::scheme::{self, Finding, Head, Suspect};
/// use tower_webhook::testing::TestSender;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let sender = TestSender::new(scheme::stripe("whsec_of_the_test_mode")?);
/// let (parts, body) = sender.deliver(r#"{"id":"evt_1"}"#).request_as::<Bytes>().into_parts();
///
/// let stripe = scheme::stripe("whsec_of_the_live_mode")?;
/// let head = Head::new(&parts, SystemTime::now());
/// let suspects = [Suspect::new("whsec_of_the_test_mode").label("test mode")];
/// let diagnosis = scheme::diagnose(&stripe, &head, &body, suspects).await;
/// assert!(matches!(diagnosis.findings(), [Finding::OtherSecret { .. }]));
/// println!("{diagnosis}"); // wrong secret: the signature is right for the suspected secret "test mode": …
/// # Ok::<(), tower_webhook::ConfigError>(())
/// # }).unwrap();
/// ```
pub async fn diagnose(
    scheme: &(impl Scheme + ?Sized),
    head: &Head<'_>,
    body: &[u8],
    suspects: impl Into<Suspects>,
) -> Diagnosis {
    let suspects = suspects.into();
    let Err(rejection) = verify(scheme, head, body).await else { return Diagnosis::VERIFIES };
    let secrets = match scheme.secrets().begin(head) {
        Ok(Found::Now(set)) => Some(Arc::clone(&set)),
        Ok(Found::Later(lookup)) => lookup.await.ok().map(|snapshot| snapshot.set),
        Err(_) => None,
    };
    let refused = Refused { head: *head, body: Some(body), rejection, secrets };
    investigate(scheme, &refused, &suspects, Effort::UNLIMITED)
}

/// A delivery that was refused.
pub(crate) struct Refused<'a> {
    pub(crate) head: Head<'a>,
    /// The whole body, if it was read before the delivery was refused.
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) rejection: Rejection,
    /// The scheme's secrets for this delivery, if they could be found.
    pub(crate) secrets: Option<Arc<SecretSet>>,
}

/// How much work a diagnosis may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// The bytes that are still to be hashed.
    bytes: u64,
}

impl Effort {
    pub(crate) const UNLIMITED: Self = Self { bytes: u64::MAX };

    /// As much work as it is to hash this many bytes.
    pub(crate) const fn of_bytes(bytes: u64) -> Self {
        Self { bytes }
    }

    /// Whether this much may still be done.
    fn spend(&mut self, bytes: u64) -> bool {
        match self.bytes.checked_sub(bytes) {
            Some(left) => {
                self.bytes = left;
                true
            }
            None => false,
        }
    }
}

/// Finds out why a delivery was refused.
pub(crate) fn investigate(
    scheme: &(impl Scheme + ?Sized),
    refused: &Refused<'_>,
    suspects: &Suspects,
    effort: Effort,
) -> Diagnosis {
    let Refused { head, body, rejection, secrets } = refused;
    let body = *body;
    let mut search = Search {
        scheme,
        parts: head.parts(),
        now: head.now(),
        body: body.unwrap_or_default(),
        own: secrets.as_deref(),
        suspects: Vec::new(),
        effort,
        gave_up: false,
    };
    let (mut findings, mut current) = (Vec::new(), rejection.clone());
    if let Some(seconds) = rejection.seconds_outside() {
        // The rejection itself tells how far the clock has to be moved for the timestamp to be just within tolerance.
        let is_late = rejection.kind() == RejectionKind::Stale;
        let moved = Duration::from_secs(seconds);
        let then = if is_late { search.now.checked_sub(moved) } else { search.now.checked_add(moved) };
        let genuine = match (body, then) {
            (Some(_), Some(then)) => {
                search.now = then;
                let verified = search.verify_own();
                let genuine = search.own.map(|_| verified.is_ok());
                current = verified.err().unwrap_or(current);
                genuine
            }
            _ => None,
        };
        findings.push(match is_late {
            true => Finding::Late { seconds, genuine },
            false => Finding::Early { seconds, genuine },
        });
    }
    if body.is_some() && is_about_the_signature(current.kind()) {
        search.suspects = suspects.keys(scheme.secrets());
        findings.extend(search.find());
    }
    Diagnosis::refused(rejection.clone(), findings)
}

/// Whether another secret, body or URL can explain the rejection.
fn is_about_the_signature(kind: RejectionKind) -> bool {
    use RejectionKind as Kind;
    matches!(kind, Kind::SignatureMismatch | Kind::NoActiveSecret | Kind::UnknownTenant | Kind::SecretsUnavailable)
}

/// The search for what makes a delivery verify.
struct Search<'a, S: ?Sized> {
    scheme: &'a S,
    parts: &'a Parts,
    now: SystemTime,
    body: &'a [u8],
    /// The secrets that the scheme has for this delivery.
    own: Option<&'a SecretSet>,
    suspects: Vec<SuspectedKey>,
    effort: Effort,
    /// Whether something was not tried, since it would have been too much work.
    gave_up: bool,
}

impl<S: Scheme + ?Sized> Search<'_, S> {
    fn verify_own(&self) -> Result<(), Rejection> {
        let own = self.own.ok_or(RejectionKind::SecretsUnavailable)?;
        let keys = Keys::new(own.active(self.now).map(|(_, key)| (key.clone(), Origin::Own)));
        verify_under(self.scheme, &Head::new(self.parts, self.now), self.body, &keys.set).map(drop)
    }

    /// Returns the explanations of the mismatch: a secret if one does, else a change of the body, else one of the URL.
    fn find(&mut self) -> Vec<Finding> {
        let all = self.keys(true);
        if let Some(origin) = self.matching(self.scheme, self.parts, self.body, &all) {
            return origin.finding().into_iter().collect();
        }
        if self.gave_up {
            return vec![Finding::LargeBody];
        }
        let plain = self.keys(false);
        if let Some(found) = self.other_body(&plain).or_else(|| self.other_url(&plain)) {
            return found;
        }
        let mut findings = Vec::new();
        if self.body.is_empty() {
            findings.push(Finding::EmptyBody);
        }
        if Json::parse(self.body).is_some_and(|json| json.looks_sorted()) {
            findings.push(Finding::SortedKeys);
        }
        if self.gave_up {
            findings.push(Finding::LargeBody);
        }
        findings
    }

    /// The scheme's own keys and the suspected ones. All of them are the expired ones, too, and those that need a slip
    /// to be undone.
    fn keys(&self, all: bool) -> Keys {
        let own = self.own.into_iter().flat_map(|own| own.active(self.now)).map(|(_, key)| (key.clone(), Origin::Own));
        let expired = self.own.filter(|_| all).into_iter().flat_map(|own| own.expired(self.now));
        let expired = expired.map(|(label, key)| (key.clone(), Origin::Expired { label: label.into() }));
        let suspects = self.suspects.iter().filter(|suspect| all || suspect.slip.is_none());
        // A text that is right as it is goes before one with a slip.
        let (plain, slipped): (Vec<_>, Vec<_>) = suspects.partition(|suspect| suspect.slip.is_none());
        let suspected = plain
            .into_iter()
            .chain(slipped)
            .map(|suspect| (suspect.key.clone(), Origin::Suspect { label: suspect.label.clone(), slip: suspect.slip }));
        Keys::new(own.chain(expired).chain(suspected))
    }

    /// The origin of the key under which this delivery verifies.
    fn matching<T: Scheme + ?Sized>(&mut self, scheme: &T, parts: &Parts, body: &[u8], keys: &Keys) -> Option<Origin> {
        let work = keys.each().map(|key| work(key, body)).sum();
        if !self.effort.spend(work) {
            self.gave_up = true;
            return None;
        }
        let verified = verify_under(scheme, &Head::new(parts, self.now), body, &keys.set).ok()?;
        keys.origin(verified.secret())
    }

    fn other_body(&mut self, keys: &Keys) -> Option<Vec<Finding>> {
        let (body, parts, scheme) = (self.body, self.parts, self.scheme);
        let found = bodies::find(body, |change, other| match self.matching(scheme, parts, other, keys) {
            Some(origin) => Some(Some((origin, change.clone()))),
            // To make more bodies is work, too.
            None => self.gave_up.then_some(None),
        });
        let (origin, change) = found??;
        Some(origin.finding().into_iter().chain([Finding::AlteredBody { change }]).collect())
    }

    fn other_url(&mut self, keys: &Keys) -> Option<Vec<Finding>> {
        let head = Head::new(self.parts, self.now);
        match self.scheme.signed_url(&head) {
            Some(signed) => self.other_public_url(&signed, keys),
            None if self.scheme.profile().signs_url => self.other_path(keys),
            None => None,
        }
    }

    fn other_public_url(&mut self, signed: &str, keys: &Keys) -> Option<Vec<Finding>> {
        let signed = UrlParts::of(signed)?;
        signed.others(self.parts).iter().find_map(|other| {
            let scheme = self.scheme.at_url(&other.text())?;
            let origin = self.matching(&*scheme, self.parts, self.body, keys)?;
            let found = Finding::OtherUrl { url: other.shown(), differs: other.differs_from(&signed) };
            Some(origin.finding().into_iter().chain([found]).collect())
        })
    }

    /// Of a scheme that reads the URL from the request, and cannot be told another one.
    fn other_path(&mut self, keys: &Keys) -> Option<Vec<Finding>> {
        let query = self.parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let paths = other_paths(self.parts.uri.path(), self.parts);
        paths.into_iter().find_map(|path| {
            let mut uri = self.parts.uri.clone().into_parts();
            uri.path_and_query = Some(PathAndQuery::try_from(format!("{path}{query}")).ok()?);
            let mut parts = self.parts.clone();
            parts.uri = http::Uri::from_parts(uri).ok()?;
            let origin = self.matching(self.scheme, &parts, self.body, keys)?;
            let found = Finding::OtherUrl { url: path.into(), differs: vec![UrlPart::Path] };
            Some(origin.finding().into_iter().chain([found]).collect())
        })
    }
}

/// How much work it is to verify under this key, in bytes to hash.
fn work(key: &Key, body: &[u8]) -> u64 {
    /// A signature of a private key takes about as long as this many bytes.
    const ASYMMETRIC: u64 = 64 * 1024;
    /// The cost of every verification besides the bytes of the body.
    const EACH: u64 = 1024;
    let is_asymmetric = key.start().is_none() && key.token_digest().is_none();
    body.len() as u64 + EACH + if is_asymmetric { ASYMMETRIC } else { 0 }
}
