use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderName;
use sha2::{Digest, Sha256};

use super::common::{DAY, MINUTE, seconds};
use crate::error::ConfigError;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::identity::{IdSource, TypeSource};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::timestamp::TimestampUnit;
use crate::scheme::{Encoding, Head, Outgoing, Profile, Proof, Scheme, Template, Tolerance};
use crate::secrets::{Algorithm, IntoSecrets, Key, Secret, SecretSet, Secrets, Signature, TenantSecrets};

const VERIFICATION: HeaderName = HeaderName::from_static("plaid-verification");

/// Plaid: `Plaid-Verification`, a JWT signed with ES256, whose `request_body_sha256` covers the body.
///
/// Plaid signs with keys that change, and names the one it used. Pass [`plaid_keys`], which looks up a key by its name.
/// A key is the JWK that `/webhook_verification_key/get` returns. A private key (PKCS #8, base64) also signs, for
/// tests.
///
/// **Id:** the digest of the JWT, signed. Plaid's bodies have no id, and two notifications may be equal bytes. A
/// captured delivery is a duplicate; a retry that Plaid signs anew runs again. **Timestamps:** five minutes.
/// **Reported:** retries over 24 hours; Plaid waits 10 s.
///
/// [`plaid_keys`] has an example.
///
/// # Errors
/// If a secret is not such a key.
pub fn plaid(secrets: impl IntoSecrets) -> Result<Plaid, ConfigError> {
    let secrets = Secrets::new(secrets, |text| {
        let bytes = match text.starts_with('{') {
            true => {
                jwk_public_key(text).ok_or_else(|| ConfigError::secret("this is not the JWK of an ES256 key"))?.into()
            }
            false => Encoding::Base64.secret(text)?,
        };
        Key::new(Algorithm::EcdsaP256, &bytes)
    })?;
    Ok(Plaid { secrets, tolerance: Tolerance::Within(5 * MINUTE) })
}

/// Plaid's keys, looked up by the name in the delivery. Results are cached for ten minutes. Return `None` for a key
/// that Plaid does not know, or that has expired.
///
/// ```
/// use tower_webhook::scheme::{plaid, plaid_keys};
/// use tower_webhook::secrets::Secret;
/// # async fn ask_plaid(_: String) -> Result<Option<String>, std::io::Error> { Ok(None) }
///
/// let scheme = plaid(plaid_keys(|key_id| async move {
///     // POST /webhook_verification_key/get, and its `key` as text; `None` if it has an `expired_at`.
///     let jwk = ask_plaid(key_id).await?;
///     Ok(jwk.map(Secret::new).transpose()?)
/// }))?;
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
pub fn plaid_keys<L, F>(lookup: L) -> TenantSecrets
where
    L: Fn(String) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Option<Secret>, Box<dyn std::error::Error + Send + Sync>>> + Send + 'static,
{
    let found = move |key_id| {
        let asked = lookup(key_id);
        async move { Ok(asked.await?.map(|key| vec![key])) }
    };
    TenantSecrets::new(|head| Jwt::of(head).ok()?.key_id(), found).by_key_id().cache(1_000, 10 * MINUTE)
}

/// Plaid's scheme, made by [`plaid`].
#[derive(Clone)]
pub struct Plaid {
    secrets: Secrets,
    tolerance: Tolerance,
}

impl Plaid {
    /// Accepts timestamps this far from now (default five minutes).
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }

    /// The time at which the JWT was issued, and the digest of the body that it was issued for.
    fn claims<'a>(&self, jwt: &'a Jwt<'_>, now: SystemTime) -> Result<(SystemTime, Cow<'a, str>), Rejection> {
        match fields(&jwt.claims, ["iat", "request_body_sha256"]) {
            Some([Field::Other(issued_at), Field::Text(digest)]) => {
                Ok((TimestampUnit::Seconds.read(issued_at.as_bytes(), self.tolerance, now)?, digest))
            }
            _ => Err(MALFORMED),
        }
    }
}

impl Scheme for Plaid {
    fn name(&self) -> &str {
        "plaid"
    }

    fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn read(&self, head: &Head<'_>) -> Result<Proof, Rejection> {
        // Checked before a key is looked up.
        self.claims(&Jwt::of(head)?, head.now())?;
        Ok(Proof::in_body())
    }

    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        let jwt = Jwt::of(head)?;
        let (signed_at, digest) = self.claims(&jwt, head.now())?;
        // The digest contains no secret: anyone who sees the body can compute it.
        if *digest != hex::encode(Sha256::digest(body)) {
            return Err(RejectionKind::SignatureMismatch.into());
        }
        let id = hex::encode(Sha256::digest(jwt.signed));
        let mut proof = Proof::of(jwt.signed).with_digest_of_body().timestamp(signed_at).id(id);
        proof.add_bytes(Algorithm::EcdsaP256, &jwt.signature);
        Ok(vec![proof])
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        let issued_at = TimestampUnit::Seconds.write(message.unix_millis()?);
        let digest = hex::encode(Sha256::digest(message.body()));
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let header = encode(r#"{"alg":"ES256","kid":"test","typ":"JWT"}"#);
        let claims = encode(&format!(r#"{{"iat":{issued_at},"request_body_sha256":"{digest}"}}"#));
        let signed = format!("{header}.{claims}");
        let der = secrets.first_active(message.signed_at)?.sign(&[signed.as_bytes()])?;
        let Some(Signature::Asymmetric(_, numbers)) = Signature::new(Algorithm::EcdsaP256, &der) else {
            return Err(ConfigError::secret("this key does not sign with ES256"));
        };
        message.set_header(&VERIFICATION, &format!("{signed}.{}", URL_SAFE_NO_PAD.encode(numbers)))
    }

    fn profile(&self) -> Profile {
        Profile::default()
            .id(IdSource::signed().described("digest of the JWT"))
            .event_type(TypeSource::key("webhook_code"))
            .tolerance(self.tolerance)
            .proof_headers([VERIFICATION])
            .sender_timeout(seconds(10))
            .retry_window(DAY)
    }

    fn signs(&self) -> String {
        "ES256, in a JWT with the digest of the body".to_owned()
    }
}

/// The three parts of a JWT, decoded and not verified.
struct Jwt<'a> {
    /// The signed bytes: the first two parts as they were sent.
    signed: &'a [u8],
    header: Vec<u8>,
    claims: Vec<u8>,
    signature: [u8; 64],
}

impl<'a> Jwt<'a> {
    /// Parses the JWT in the head, which must be signed with ES256.
    fn of(head: &Head<'a>) -> Result<Self, Rejection> {
        let jwt = Self::parse(head.proof_header(VERIFICATION)?).ok_or(MALFORMED)?;
        let [algorithm] = fields(&jwt.header, ["alg"]).ok_or(MALFORMED)?;
        match algorithm {
            Field::Text(algorithm) if algorithm == "ES256" => Ok(jwt),
            _ => Err(RejectionKind::UnsupportedSignature.into()),
        }
    }

    fn parse(text: &'a [u8]) -> Option<Self> {
        let dots: Vec<usize> = text.iter().enumerate().filter(|(_, byte)| **byte == b'.').map(|(at, _)| at).collect();
        let [first, second] = dots[..] else { return None };
        let decode = |text: &[u8]| URL_SAFE_NO_PAD.decode(text).ok();
        Some(Self {
            signed: &text[..second],
            header: decode(&text[..first])?,
            claims: decode(&text[first + 1..second])?,
            // Two numbers of 32 bytes: a signature in a JWT has one spelling, and DER is not accepted.
            signature: decode(&text[second + 1..])?.try_into().ok()?,
        })
    }

    fn key_id(&self) -> Option<String> {
        let [key_id] = fields(&self.header, ["kid"])?;
        Some(key_id.text()?.into_owned())
    }
}

/// The public key of a JWK, as a point in SEC 1.
fn jwk_public_key(jwk: &str) -> Option<Vec<u8>> {
    let [curve, x, y] = fields(jwk.as_bytes(), ["crv", "x", "y"])?;
    let coordinate = |field: Field<'_>| URL_SAFE_NO_PAD.decode(field.text()?.as_bytes()).ok().filter(|x| x.len() == 32);
    (curve.text()? == "P-256").then_some(())?;
    Some([vec![4], coordinate(x)?, coordinate(y)?].concat())
}

fn fields<'a, const N: usize>(json: &'a [u8], keys: [&str; N]) -> Option<[Field<'a>; N]> {
    json_body::read(json, keys.map(JsonPath::key).each_ref()).ok()
}

impl fmt::Debug for Plaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plaid").field("secrets", &self.secrets).field("tolerance", &self.tolerance).finish()
    }
}

const MALFORMED: Rejection = Rejection::malformed("plaid-verification is not a JWT as plaid sends it");

/// SendGrid: `X-Twilio-Email-Event-Webhook-Signature: {base64}`, ECDSA over P-256 of `{timestamp}{body}`, with
/// `X-Twilio-Email-Event-Webhook-Timestamp`. The secret is the public key as SendGrid shows it, base64 of DER. A
/// private key (PKCS #8, base64) also signs, for tests.
///
/// **Id:** the digest of the body, a batch whose events all have a `sg_event_id`. **Timestamps** may be two days old,
/// because SendGrid does not say that it signs a retry anew. **Reported:** retries over a day.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let sendgrid = scheme::sendgrid(std::env::var("SENDGRID_VERIFICATION_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is not such a key.
pub fn sendgrid(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("sendgrid")
        .signature("x-twilio-email-event-webhook-signature", "{base64}")
        .timestamp("x-twilio-email-event-webhook-timestamp")
        .own_headers(["x-twilio-email-*"])
        .algorithm(Algorithm::EcdsaP256)
        .secret_encoding(Encoding::Base64)
        .signed("{timestamp}{body}")
        .tolerance(2 * DAY)
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::none())
        .retry_window(DAY)
        .build(secrets)
}
