use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue};

use super::proof::TAG;
use super::{Head, Outgoing, Profile, Proof, Scheme, Tolerance, hex};
use crate::error::{ConfigError, ConfigErrorKind};
use crate::head::header_name;
use crate::identity::{IdSource, TypeSource};
use crate::rejection::{Rejection, RejectionKind};
use crate::secrets::{IntoSecrets, MacKey, SecretSet, Secrets};

/// The default scheme: `t=<unix seconds>,v1=<hex>[,v1=<hex> …]`, HMAC-SHA256 over `t`, a dot and the body.
///
/// The secret's whole text is the key. Any `v1` may match any active secret, upper and lower case hex are the same, and
/// signatures of other versions are passed over; everything else that is not of this form is refused.
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::scheme::Timestamped;
///
/// let scheme = Timestamped::new(["whsec_new", "whsec_old"])?
///     .header("x-acme-signature")?
///     .tolerance(Duration::from_secs(60));
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Timestamped {
    name: &'static str,
    header: HeaderName,
    tolerance: Tolerance,
    secrets: Secrets,
    profile: Profile,
}

impl Timestamped {
    /// Signatures in the header `webhook-signature`, under these secrets.
    ///
    /// # Errors
    /// When a secret cannot be one, or there are none, or more than eight.
    pub fn new(secrets: impl IntoSecrets) -> Result<Self, ConfigError> {
        Ok(Self {
            name: "timestamped",
            header: HeaderName::from_static("webhook-signature"),
            tolerance: Tolerance::default(),
            secrets: Secrets::new(secrets, |text| MacKey::hmac_sha256(text.as_bytes()))?,
            profile: Profile::default(),
        })
    }

    /// Stripe's: `Stripe-Signature`, and retries over three days.
    ///
    /// # Errors
    /// As [`Timestamped::new`].
    pub fn stripe(secrets: impl IntoSecrets) -> Result<Self, ConfigError> {
        let mut stripe = Self::new(secrets)?;
        stripe.name = "stripe";
        stripe.header = HeaderName::from_static("stripe-signature");
        stripe.profile.retry_window = Some(Duration::from_secs(3 * 24 * 3600));
        Ok(stripe)
    }

    /// Calendly's: `Calendly-Webhook-Signature`, three minutes, and retries over a day.
    ///
    /// # Errors
    /// As [`Timestamped::new`].
    pub fn calendly(secrets: impl IntoSecrets) -> Result<Self, ConfigError> {
        let mut calendly = Self::new(secrets)?.tolerance(Duration::from_secs(180));
        calendly.name = "calendly";
        calendly.header = HeaderName::from_static("calendly-webhook-signature");
        calendly.profile.retry_window = Some(Duration::from_secs(24 * 3600));
        calendly.profile.sender_timeout = Some(Duration::from_secs(15));
        // Its bodies carry no id, but when the event was created: no two are alike.
        calendly.profile.id = IdSource::body_digest();
        calendly.profile.event_type = TypeSource::key("event");
        Ok(calendly)
    }

    /// Takes the signatures from another header.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn header(mut self, name: &str) -> Result<Self, ConfigError> {
        self.header = header_name(name)?;
        Ok(self)
    }

    /// Accepts timestamps this far from now, both ways and inclusive (default 300 s). The opt-out is
    /// [`Tolerance::InsecureUnchecked`].
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }

    /// What is known of the sender, where it is not the default.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    /// What is signed before the body. Verifying and signing share it.
    fn signed_prefix(timestamp: &[u8]) -> [&[u8]; 2] {
        [timestamp, b"."]
    }
}

impl Scheme for Timestamped {
    fn name(&self) -> &str {
        self.name
    }

    fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        let (mut proof, mut timestamp) = (Proof::new(), None);
        let mut elements = Elements(head.proof_header(&self.header)?);
        while let Some(key) = elements.key()? {
            match key {
                b"t" if timestamp.is_some() => return Err(malformed("t is there twice")),
                b"t" => {
                    let text = elements.value()?;
                    let seconds = parse_seconds(text)?;
                    self.tolerance.check(seconds, head.now())?;
                    timestamp = Some(text);
                    proof.set_timestamp(UNIX_EPOCH + Duration::from_secs(seconds));
                }
                b"v1" => elements.signature_into(&mut proof)?,
                _ => {
                    elements.value()?;
                }
            }
        }
        let timestamp = timestamp.ok_or(malformed("t is missing"))?;
        proof.set_prefix(&Self::signed_prefix(timestamp));
        Ok(proof)
    }

    fn sign(&self, message: &Outgoing<'_>, secrets: &SecretSet) -> Result<HeaderMap, ConfigError> {
        let seconds = unix_seconds(message.timestamp)?.to_string();
        let [timestamp, dot] = Self::signed_prefix(seconds.as_bytes());
        let mut value = format!("t={seconds}");
        for (_, key) in secrets.active(message.timestamp) {
            value.push_str(",v1=");
            value.push_str(&::hex::encode(key.tag(&[timestamp, dot, message.body])));
        }
        let value = HeaderValue::try_from(value)
            .map_err(|_| ConfigError::new(ConfigErrorKind::Name, "the signature does not fit a header"))?;
        Ok(HeaderMap::from_iter([(self.header.clone(), value)]))
    }

    fn profile(&self) -> Profile {
        Profile { replay_window: self.tolerance.window(), ..self.profile.clone() }
    }
}

/// What is left of the list `key=value,key=value`. One element that is not of this form spoils it.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    /// The next element's key: a plain word.
    fn key(&mut self) -> Result<Option<&'a [u8]>, Rejection> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let length = self.0.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        match self.0[length..].split_first() {
            Some((b'=', rest)) if length > 0 => Ok(Some(&std::mem::replace(&mut self.0, rest)[..length])),
            _ => Err(NOT_A_LIST),
        }
    }

    /// The value that belongs to it: visible ASCII up to the comma.
    fn value(&mut self) -> Result<&'a [u8], Rejection> {
        let length = self.0.iter().take_while(|byte| byte.is_ascii_graphic() && **byte != b',').count();
        self.take(length)
    }

    /// The value that belongs to it, as a signature. Where that ends is known beforehand, and hex digits are visible.
    fn signature_into(&mut self, proof: &mut Proof) -> Result<(), Rejection> {
        let ends_there = self.0.get(2 * TAG).is_none_or(|byte| *byte == b',');
        if let Some(tag) = self.0.get(..2 * TAG).filter(|_| ends_there).and_then(hex::decode) {
            proof.add(tag);
            return self.take(2 * TAG).map(drop);
        }
        proof.add_hex(self.value()?);
        Ok(())
    }

    /// Consumes a value of this length, and the comma after it, behind which another element must stand.
    fn take(&mut self, length: usize) -> Result<&'a [u8], Rejection> {
        let (value, rest) = self.0.split_at(length);
        self.0 = match rest {
            [] => rest,
            [b',', rest @ ..] if !rest.is_empty() => rest,
            _ => return Err(NOT_A_LIST),
        };
        Ok(value)
    }
}

const NOT_A_LIST: Rejection = malformed("it must read t=<unix seconds>,v1=<hex>");

/// Digits only and no leading zero: the MAC covers the text, so one moment must have one spelling. Twelve of them reach
/// beyond the year 30000.
fn parse_seconds(text: &[u8]) -> Result<u64, Rejection> {
    let canonical = matches!(text.len(), 1..=12) && (text[0] != b'0' || text.len() == 1);
    if !canonical || !text.iter().all(u8::is_ascii_digit) {
        return Err(malformed("t is not a number of unix seconds; milliseconds are not"));
    }
    Ok(text.iter().fold(0, |seconds, digit| seconds * 10 + u64::from(digit - b'0')))
}

const fn malformed(detail: &'static str) -> Rejection {
    Rejection::with_detail(RejectionKind::MalformedSignature, detail)
}

fn unix_seconds(time: SystemTime) -> Result<u64, ConfigError> {
    let since = time.duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).map_err(|_| ConfigError::new(ConfigErrorKind::Duration, "before 1970"))
}
