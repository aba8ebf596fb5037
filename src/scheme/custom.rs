use std::fmt;
use std::sync::Arc;

use http::HeaderName;

use super::{Head, Outgoing, Profile, Proof, Scheme};
use crate::error::ConfigError;
use crate::rejection::Rejection;
use crate::secrets::{SecretSet, Secrets};

type ReadHead = dyn Fn(&Head<'_>) -> Result<Proof, Rejection> + Send + Sync;
type ReadBody = dyn Fn(&Head<'_>, &[u8]) -> Result<Vec<Proof>, Rejection> + Send + Sync;
type SignedUrl = dyn Fn(&Head<'_>) -> Option<String> + Send + Sync;
type AtUrl = dyn Fn(&str) -> Option<Custom> + Send + Sync;
type Sign = dyn Fn(&mut Outgoing, &SecretSet) -> Result<(), ConfigError> + Send + Sync;

/// A scheme made from a closure, for formats that no [`Template`](super::Template) describes.
///
/// The closure only reads the proof, and says what is signed. The layer verifies it.
///
/// ```
/// use tower_webhook::scheme::{Custom, Encoding, Proof};
/// use tower_webhook::secrets::{Algorithm, Key, Secrets};
///
/// let secrets = Secrets::new("a secret", |text| Key::hmac_sha256(text.as_bytes()))?;
/// // `x-acme-proof: <region>:<hex>`, over the region, a line break and the body.
/// let acme = Custom::by_head("acme", secrets, |head| {
///     let value = head.proof_header("x-acme-proof")?;
///     let colon = value.iter().position(|byte| *byte == b':').unwrap_or(0);
///     let (region, signature) = value.split_at(colon);
///     let mut proof = Proof::new().prefix(&[region, b"\n"].concat());
///     proof.add(Algorithm::HmacSha256, Encoding::Hex, signature.strip_prefix(b":").unwrap_or(signature));
///     Ok(proof)
/// });
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct Custom {
    name: Arc<str>,
    secrets: Secrets,
    read: Read,
    sign: Option<Arc<Sign>>,
    profile: Profile,
    signs: &'static str,
    required: Option<HeaderName>,
    url: Option<UrlSigning>,
}

/// How a scheme that signs the URL is diagnosed.
#[derive(Clone)]
struct UrlSigning {
    signed: Arc<SignedUrl>,
    at: Arc<AtUrl>,
}

#[derive(Clone)]
enum Read {
    Head(Arc<ReadHead>),
    Body(Arc<ReadBody>),
}

impl Custom {
    /// Creates a scheme whose proof is in the head. The body may be verified while it arrives.
    pub fn by_head<R>(name: impl Into<Arc<str>>, secrets: Secrets, read: R) -> Self
    where
        R: Fn(&Head<'_>) -> Result<Proof, Rejection> + Send + Sync + 'static,
    {
        Self::new(name.into(), secrets, Read::Head(Arc::new(read)))
    }

    /// Creates a scheme whose proofs are in the body, or depend on it. All of them must hold.
    pub fn by_body<R>(name: impl Into<Arc<str>>, secrets: Secrets, read: R) -> Self
    where
        R: Fn(&Head<'_>, &[u8]) -> Result<Vec<Proof>, Rejection> + Send + Sync + 'static,
    {
        Self::new(name.into(), secrets, Read::Body(Arc::new(read)))
    }

    fn new(name: Arc<str>, secrets: Secrets, read: Read) -> Self {
        let (profile, signs) = (Profile::default(), "a closure");
        Self { name, secrets, read, sign: None, profile, signs, required: None, url: None }
    }

    /// Sets how the sender signs. The test kit needs it to act as the sender.
    #[must_use]
    pub fn signing<S>(mut self, sign: S) -> Self
    where
        S: Fn(&mut Outgoing, &SecretSet) -> Result<(), ConfigError> + Send + Sync + 'static,
    {
        self.sign = Some(Arc::new(sign));
        self
    }

    /// Sets which URL is signed ([`Scheme::signed_url`]), and the scheme for another one ([`Scheme::at_url`]).
    pub(super) fn signing_url(
        mut self,
        signed: impl Fn(&Head<'_>) -> Option<String> + Send + Sync + 'static,
        at: impl Fn(&str) -> Option<Self> + Send + Sync + 'static,
    ) -> Self {
        self.url = Some(UrlSigning { signed: Arc::new(signed), at: Arc::new(at) });
        self
    }

    /// Refuses deliveries without this header, before their body is read. The header counts as part of the proof, so an
    /// inbox does not keep it.
    #[must_use]
    pub fn required_header(mut self, header: HeaderName) -> Self {
        self.required = Some(header);
        self
    }

    /// Describes the signed content and the algorithm in words.
    #[must_use]
    pub fn described(mut self, signs: &'static str) -> Self {
        self.signs = signs;
        self
    }

    /// Sets the sender's profile. The default makes no assumptions about the sender, and takes the top-level `id` and
    /// `type`.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }
}

impl Scheme for Custom {
    fn name(&self) -> &str {
        &self.name
    }

    fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        self.required.as_ref().map(|name| head.proof_header(name)).transpose()?;
        match &self.read {
            Read::Head(read) => read(head),
            Read::Body(_) => Ok(Proof::in_body()),
        }
    }

    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        match &self.read {
            Read::Head(read) => read(head).map(|proof| vec![proof]),
            Read::Body(read) => read(head, body),
        }
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        let sign = self.sign.as_ref();
        sign.ok_or_else(|| ConfigError::scheme("this scheme only verifies: set how it signs with `signing`"))?(
            message, secrets,
        )
    }

    fn profile(&self) -> Profile {
        self.profile.clone().proof_headers(self.required.clone())
    }

    fn signs(&self) -> String {
        self.signs.to_owned()
    }

    fn signed_url(&self, head: &Head<'_>) -> Option<String> {
        (self.url.as_ref()?.signed)(head)
    }

    fn at_url(&self, url: &str) -> Option<Arc<dyn Scheme>> {
        Some(Arc::new((self.url.as_ref()?.at)(url)?))
    }
}

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Custom").field("name", &self.name).field("secrets", &self.secrets).finish_non_exhaustive()
    }
}
