use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderName, Response};

use super::signature_format::SignatureFormat;
use super::signed_text::{SignedText, SignedValues};
use crate::error::ConfigError;
use crate::head::header_name;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::rejection::Rejection;
use crate::scheme::body::set_json_field;
use crate::scheme::public_url::PublicUrl;
use crate::scheme::timestamp::TimestampUnit;
use crate::scheme::{Head, HeaderPattern, Outgoing, Profile, Proof, Scheme, Tolerance};
use crate::secrets::{Algorithm, Key, SecretSet, Secrets};

pub(super) type Probe = dyn Fn(&Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> + Send + Sync;
pub(super) type Handshake = dyn Fn(&[u8], &Key) -> Option<Response<Bytes>> + Send + Sync;

/// A scheme that is described by where its parts are and by the signed text. Nearly every provider's scheme is one.
///
/// ```
/// use std::time::Duration;
/// use tower_webhook::scheme::Template;
///
/// let acme = Template::builder("acme")
///     .signature("x-acme-signature", "sha256={hex}")
///     .timestamp("x-acme-timestamp")
///     .signed("{timestamp}.{body}")
///     .build(["the new secret", "the old one"])?
///     .tolerance(Duration::from_secs(60));
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Template {
    pub(super) name: Cow<'static, str>,
    pub(super) algorithm: Algorithm,
    pub(super) header_sets: Vec<HeaderSet>,
    pub(super) format: SignatureFormat,
    pub(super) signed: SignedText,
    pub(super) unit: TimestampUnit,
    pub(super) body_timestamp: Option<JsonPath>,
    pub(super) json_body: bool,
    pub(super) tolerance: Tolerance,
    pub(super) url: Option<PublicUrl>,
    pub(super) secrets: Secrets,
    pub(super) profile: Profile,
    pub(super) probe: Option<Arc<Probe>>,
    pub(super) handshake: Option<Arc<Handshake>>,
}

impl Template {
    /// Takes the signatures from another header.
    ///
    /// # Errors
    /// If `name` is not a valid header name.
    pub fn header(mut self, name: &str) -> Result<Self, ConfigError> {
        let signature = ProofHeader::new(name)?;
        self.header_sets.truncate(1);
        self.header_sets.iter_mut().for_each(|headers| headers.signature = signature.clone());
        Ok(self)
    }

    /// Accepts timestamps this far from now, in both directions and inclusive. [`Tolerance::InsecureUnchecked`]
    /// disables the check.
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }

    /// Replaces the facts about the sender. Start from what [`Scheme::profile`] returns.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }
}

impl Scheme for Template {
    fn name(&self) -> &str {
        &self.name
    }

    fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        self.read_head(head)
    }

    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        self.proof_from_body(head, body).map(|proof| vec![proof])
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        self.sign_message(message, secrets)
    }

    fn profile(&self) -> Profile {
        let read = self.header_sets.iter().flat_map(|headers| headers.timestamp.iter().chain(&headers.id));
        let proofs = self.header_sets.iter().map(|headers| headers.signature.name.clone());
        let profile = self.profile.clone().own_headers(read.map(|header| HeaderPattern::name(header.name.clone())));
        Profile { tolerance: self.is_timestamped().then_some(self.tolerance), ..profile.proof_headers(proofs) }
    }

    fn signs(&self) -> String {
        match self.algorithm {
            Algorithm::Token => "nothing: the token is sent along".to_owned(),
            Algorithm::KeyedSha256 => format!("SHA-256 of the secret and {}", self.signed),
            algorithm => format!("{algorithm} of {}", self.signed),
        }
    }

    fn signed_url(&self, head: &Head<'_>) -> Option<String> {
        Some(self.url.as_ref()?.for_request(head).ok()?.into_owned())
    }

    fn at_url(&self, url: &str) -> Option<Arc<dyn Scheme>> {
        let url = self.url.as_ref()?.at(url)?;
        Some(Arc::new(Self { url: Some(url), ..self.clone() }))
    }

    fn probe(&self, head: &Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> {
        self.probe.as_ref().and_then(|probe| probe(head))
    }

    fn handshake(&self, body: &[u8], key: &Key) -> Option<Response<Bytes>> {
        self.handshake.as_ref().and_then(|handshake| handshake(body, key))
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Template")
            .field("name", &self.name)
            .field("header_sets", &self.header_sets)
            .field("format", &self.format)
            .field("signed", &self.signed)
            .field("tolerance", &self.tolerance)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}

impl Template {
    /// Reads the proof from the head, or returns that the body is needed. A proof that the head alone can refuse is
    /// refused now.
    fn read_head(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        if self.body_timestamp.is_none() && !self.json_body {
            return self.proof_from_head(head, &[]);
        }
        let mut proof = Proof::new();
        match &self.body_timestamp {
            Some(_) => drop(self.format.read(self.headers(head).signature.value(head)?, &mut proof, self.algorithm)?),
            None => proof = self.proof_from_head(head, &[])?,
        }
        proof.check().map(|()| Proof::in_body())
    }

    /// Reads the proof, given the body.
    fn proof_from_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Proof, Rejection> {
        let Some(path) = &self.body_timestamp else {
            let is_json = body.is_empty() || json_body::read(body, []).is_ok();
            return if is_json {
                self.proof_from_head(head, &[])
            } else {
                Err(Rejection::malformed("the body is not json"))
            };
        };
        match json_body::read(body, [path]) {
            Ok([Field::Text(text)]) => self.proof_from_head(head, text.as_bytes()),
            Ok([Field::Other(number)]) => self.proof_from_head(head, number.as_bytes()),
            _ => Err(Rejection::malformed("the body has no timestamp")),
        }
    }

    /// The first set of headers whose signature is present.
    fn headers(&self, head: &Head<'_>) -> &HeaderSet {
        let present = |headers: &&HeaderSet| head.headers().contains_key(&headers.signature.name);
        match &*self.header_sets {
            [only] => only,
            header_sets => header_sets.iter().find(present).unwrap_or(&header_sets[0]),
        }
    }

    /// Reads the proof from the head. `body_timestamp` is the text of a timestamp that is not in the head.
    fn proof_from_head(&self, head: &Head<'_>, body_timestamp: &[u8]) -> Result<Proof, Rejection> {
        let headers = self.headers(head);
        let mut proof = Proof::new();
        let listed = self.format.read(headers.signature.value(head)?, &mut proof, self.algorithm)?;
        let timestamp = match &headers.timestamp {
            Some(header) => header.value(head)?,
            None => listed.unwrap_or(body_timestamp),
        };
        if let Some(time) = self.signed_at(timestamp, headers, head.now())? {
            proof.set_timestamp(time);
        }
        let id = headers.id.as_ref().map(|header| self.signed_id(head, header)).transpose()?;
        let url = self.url.as_ref().map(|url| url.for_request(head)).transpose()?;
        let values = SignedValues {
            timestamp,
            id: id.unwrap_or_default().as_bytes(),
            url: url.as_deref().unwrap_or_default(),
            method: head.method().as_str(),
        };
        self.signed.write_to(&mut proof, &values);
        Ok(match id {
            Some(id) => proof.id(id),
            None => proof,
        })
    }

    fn signed_id<'a>(&self, head: &Head<'a>, header: &ProofHeader) -> Result<&'a str, Rejection> {
        let id = std::str::from_utf8(header.value(head)?).map_err(|_| Rejection::malformed("the id is not text"))?;
        // A number that cannot be a timestamp cannot be mistaken for one.
        let is_timestamp = |part: &str| self.unit.is_plausible(part.as_bytes(), self.tolerance.detects_moved_digits());
        let separator = self.signed.id_separator().and_then(|text| std::str::from_utf8(text).ok());
        if separator.is_some_and(|separator| id.split(separator).skip(1).any(is_timestamp)) {
            return Err(Rejection::malformed(
                "the id contains a number like a timestamp: the signed text could be split in two ways",
            ));
        }
        Ok(id)
    }

    /// Parses the time of signing, if there is one. An unchecked timestamp in a header of its own may be any number. It
    /// may not be any text, or a part of the body could be passed off as a part of the timestamp.
    fn signed_at(&self, text: &[u8], headers: &HeaderSet, now: SystemTime) -> Result<Option<SystemTime>, Rejection> {
        if !self.is_timestamped() {
            return Ok(None);
        }
        let exact = self.signed.has_timestamp_next_to_body();
        if !self.tolerance.detects_moved_digits() && !self.unit.is_plausible(text, exact) {
            return Err(Rejection::malformed("the timestamp is not a number, or not as long as today's"));
        }
        let unchecked = self.tolerance == Tolerance::InsecureUnchecked && headers.timestamp.is_some();
        match self.unit.read(text, self.tolerance, now) {
            Err(_) if unchecked => Ok(None),
            read => read.map(Some),
        }
    }

    fn is_timestamped(&self) -> bool {
        self.format.has_timestamp() || self.header_sets[0].timestamp.is_some() || self.body_timestamp.is_some()
    }

    /// Adds the headers with which this message is accepted.
    fn sign_message(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        let headers = &self.header_sets[0];
        let timestamp = self.unit.write(message.unix_millis()?);
        if let Some(header) = &headers.timestamp {
            message.set_header(&header.name, &timestamp)?;
        }
        if let Some(header) = &headers.id {
            let id = message.id.clone();
            message.set_header(&header.name, &id)?;
        }
        if let Some(path) = &self.body_timestamp {
            set_json_field(message, path, &timestamp)?;
        }
        let parts = message.parts();
        let head = Head::new(&parts, message.signed_at);
        let url = self.url.as_ref().map(|url| url.for_request(&head)).transpose();
        let url = url.map_err(|refused| ConfigError::unsignable(&refused))?;
        let values = SignedValues {
            timestamp: timestamp.as_bytes(),
            id: message.id.as_bytes(),
            url: url.as_deref().unwrap_or_default(),
            method: parts.method.as_str(),
        };
        let mut signed = Proof::new();
        self.signed.write_to(&mut signed, &values);
        // If private and public keys are mixed, the public ones are there to verify only.
        let mut keys: Vec<&Key> = secrets.active(message.signed_at).map(|(_, key)| key).collect();
        keys.retain(|key| key.can_sign());
        if keys.is_empty() {
            keys.push(secrets.first_active(message.signed_at)?);
        }
        let value = self.format.write(&timestamp, &keys, |key| key.sign(&signed.message(message.body())))?;
        message.set_header(&headers.signature.name, &value)
    }
}

/// Headers that belong together.
#[derive(Clone, Debug)]
pub(super) struct HeaderSet {
    pub(super) signature: ProofHeader,
    pub(super) timestamp: Option<ProofHeader>,
    pub(super) id: Option<ProofHeader>,
}

/// A header that is part of the proof. It must occur once and not be empty.
#[derive(Clone, Debug)]
pub(super) struct ProofHeader {
    pub(super) name: HeaderName,
    /// Its name, for the operator.
    hint: Arc<str>,
}

impl ProofHeader {
    pub(super) fn new(name: &str) -> Result<Self, ConfigError> {
        let name = header_name(name)?;
        Ok(Self { hint: name.as_str().into(), name })
    }

    pub(super) fn value<'a>(&self, head: &Head<'a>) -> Result<&'a [u8], Rejection> {
        head.proof_header(&self.name).map_err(|rejection| rejection.with_hint(&self.hint))
    }
}
