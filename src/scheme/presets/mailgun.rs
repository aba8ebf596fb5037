use std::fmt;

use super::common::{DAY, HOUR, is_word};
use crate::error::ConfigError;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::identity::{IdSource, TypeSource, json_path};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::timestamp::TimestampUnit;
use crate::scheme::{Encoding, Head, Outgoing, Profile, Proof, Scheme, Tolerance, body};
use crate::secrets::{Algorithm, IntoSecrets, Key, SecretSet, Secrets};

/// Mailgun: `signature` in the JSON body, HMAC-SHA256 in hex of its `timestamp` and `token`. **The rest of the body is
/// not signed**: an attacker who captured one delivery could send the same signature with any event, until the receiver
/// knows its token. Serve it over TLS only.
///
/// A subaccount's events carry `parent-signature` as well; either may match.
///
/// **Id:** the token, signed and used once, so that a captured one is a duplicate. **Timestamps** may be a day old,
/// because Mailgun does not say that it signs a retry anew. **Type:** `event-data.event`, not signed. **Reported:**
/// retries over eight hours.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let mailgun = scheme::mailgun(std::env::var("MAILGUN_SIGNING_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is invalid.
pub fn mailgun(secrets: impl IntoSecrets) -> Result<Mailgun, ConfigError> {
    let path = |key| json_path(&format!("signature.{key}"));
    Ok(Mailgun {
        paths: [path("timestamp")?, path("token")?, path("signature")?, path("parent-signature")?],
        secrets: Secrets::new(secrets, |text| Key::hmac_sha256(text.as_bytes()))?,
        tolerance: Tolerance::Within(DAY),
        event_type: TypeSource::json("event-data.event")?,
    })
}

/// Mailgun's scheme, made by [`mailgun`].
#[derive(Clone)]
pub struct Mailgun {
    paths: [JsonPath; 4],
    secrets: Secrets,
    tolerance: Tolerance,
    event_type: TypeSource,
}

impl Mailgun {
    /// Accepts timestamps this far from now (default a day).
    #[must_use]
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }
}

impl Scheme for Mailgun {
    fn name(&self) -> &str {
        "mailgun"
    }

    fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    fn read(&self, _: &Head<'_>) -> Result<Proof, Rejection> {
        Ok(Proof::in_body())
    }

    fn read_body(&self, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        let fields = json_body::read(body, self.paths.each_ref());
        let [timestamp, token, signature, parent] =
            fields.map_err(|_| Rejection::malformed("the body is not valid json"))?;
        let (Field::Text(timestamp), Field::Text(token)) = (timestamp, token) else {
            return Err(RejectionKind::MissingSignature.into());
        };
        let mut proof = Proof::of(&[timestamp.as_bytes(), token.as_bytes()].concat());
        for signature in [signature, parent].into_iter().filter_map(Field::text) {
            proof.add(Algorithm::HmacSha256, Encoding::Hex, signature.as_bytes());
        }
        let signed_at = TimestampUnit::Seconds.read(timestamp.as_bytes(), self.tolerance, head.now())?;
        // There is no separator between the two: digits could move from one to the other, and turn a known token into a
        // new one. A tolerance rejects that, since the timestamp would be a tenth or ten times of what it was.
        if !self.tolerance.detects_moved_digits() && timestamp.len() != 10 {
            return Err(Rejection::malformed("the timestamp does not have ten digits"));
        }
        Ok(vec![proof.timestamp(signed_at).id(&*token)])
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        let (timestamp, token) = (TimestampUnit::Seconds.write(message.unix_millis()?), message.id.clone());
        if !is_word(&token) {
            return Err(ConfigError::scheme("mailgun's token, which is the id, must be one plain word"));
        }
        let tag = secrets.first_active(message.signed_at)?.sign(&[timestamp.as_bytes(), token.as_bytes()])?;
        let signature = Encoding::Hex.write(&tag);
        let value = format!(r#"{{"timestamp":"{timestamp}","token":"{token}","signature":"{signature}"}}"#);
        body::set_json_field(message, &JsonPath::key("signature"), &value)
    }

    fn profile(&self) -> Profile {
        Profile::default()
            .id(IdSource::signed().described("json signature.token"))
            .event_type(self.event_type.clone())
            .tolerance(self.tolerance)
            .retry_window(8 * HOUR)
    }

    fn signs(&self) -> String {
        "HMAC-SHA256 of {timestamp}{token}, in the body".to_owned()
    }
}

impl fmt::Debug for Mailgun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailgun")
            .field("secrets", &self.secrets)
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}
