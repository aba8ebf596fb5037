use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Response;

use super::TemplateBuilder;
use super::form::Form;
use super::headers::{Family, ProofHeader};
use super::signed_text::SignedText;
use crate::error::ConfigError;
use crate::identity::envelope::JsonPath;
use crate::rejection::Rejection;
use crate::scheme::public_url::PublicUrl;
use crate::scheme::timestamp::Unit;
use crate::scheme::{Head, HeaderPattern, Outgoing, Profile, Proof, Scheme, Tolerance};
use crate::secrets::{Algorithm, Key, SecretSet, Secrets};

pub(super) type Probe = dyn Fn(&Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> + Send + Sync;
pub(super) type Handshake = dyn Fn(&[u8], &Key) -> Option<Response<Bytes>> + Send + Sync;

/// A scheme that is described by where its parts are and what is signed. Nearly every provider's is one.
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
    pub(super) families: Vec<Family>,
    pub(super) form: Form,
    pub(super) signed: SignedText,
    pub(super) unit: Unit,
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
    /// Describes a scheme. It signs the body with HMAC-SHA256 under the secret's text, unless told otherwise.
    pub fn builder(name: impl Into<Cow<'static, str>>) -> TemplateBuilder {
        TemplateBuilder::new(name.into())
    }

    /// Takes the signatures from another header.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn header(mut self, name: &str) -> Result<Self, ConfigError> {
        let signature = ProofHeader::new(name)?;
        self.families.truncate(1);
        self.families.iter_mut().for_each(|family| family.signature = signature.clone());
        Ok(self)
    }

    /// Accepts timestamps this far from now, both ways and inclusive. The opt-out is [`Tolerance::InsecureUnchecked`].
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }

    /// What is known of the sender, instead of what the scheme says: change what [`Scheme::profile`] gives.
    #[must_use]
    pub fn with_profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }
}

impl Template {
    pub(super) fn is_timestamped(&self) -> bool {
        self.form.has_timestamp() || self.families[0].timestamp.is_some() || self.body_timestamp.is_some()
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
        self.proof_with(head, body).map(|proof| vec![proof])
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        self.sign_message(message, secrets)
    }

    fn profile(&self) -> Profile {
        let read = self.families.iter().flat_map(|family| family.timestamp.iter().chain(&family.id));
        let proofs = self.families.iter().map(|family| family.signature.name.clone());
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
            .field("families", &self.families)
            .field("form", &self.form)
            .field("signed", &self.signed)
            .field("tolerance", &self.tolerance)
            .field("secrets", &self.secrets)
            .finish_non_exhaustive()
    }
}
