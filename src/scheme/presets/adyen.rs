use std::borrow::Cow;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::common::{DAY, seconds};
use crate::error::ConfigError;
use crate::identity::json_body::{self, Field, JsonPath};
use crate::identity::{IdSource, TypeSource, json_path};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::{Custom, Encoding, Outgoing, Profile, Proof, Template, body};
use crate::secrets::{Algorithm, IntoSecrets, Key, SecretSet, Secrets};

/// The longest time for which Adyen retries.
const RETRIES: Duration = Duration::from_secs(30 * DAY.as_secs());

/// The signed fields of an item, in this order.
const SIGNED_FIELDS: [&str; 8] = [
    "pspReference",
    "originalReference",
    "merchantAccountCode",
    "merchantReference",
    "amount.value",
    "amount.currency",
    "eventCode",
    "success",
];

/// Adyen's payment webhooks: `additionalData.hmacSignature` in every item of the JSON body, HMAC-SHA256 in base64 of
/// eight of its fields, joined by `:`. The key is the hex that Adyen shows. **The rest of the body is not signed.**
///
/// Never use one key for this and for [`adyen_banking`]: an attacker could pass off content that the latter signs as
/// fields here.
///
/// **Id:** a digest of all signed fields. Items are signed one by one, so an attacker who captured several bodies could
/// combine them into a new one: apply each item idempotently. **Type:** the first item's `eventCode`. **Retries** go on
/// for 30 days, so a retention of 7 days causes a warning.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let adyen = scheme::adyen(std::env::var("ADYEN_HMAC_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is not hex.
pub fn adyen(secrets: impl IntoSecrets) -> Result<Custom, ConfigError> {
    let secrets = Secrets::new(secrets, |text| Key::hmac_sha256(&Encoding::Hex.secret(text)?))?;
    let paths = PaymentPaths::new()?;
    let (signing, naming) = (paths.clone(), paths.clone());
    let profile = Profile::default()
        .id(IdSource::signed().described("digest of what is signed"))
        .event_type(TypeSource::by_body(move |body| naming.event_code(body)))
        .sender_timeout(seconds(10))
        .retry_window(RETRIES);
    Ok(Custom::by_body("adyen", secrets, move |_, body| paths.proofs(body))
        .signing(move |message, secrets| signing.sign(message, secrets))
        .described("HMAC-SHA256 of eight fields of each item, in the body")
        .with_profile(profile))
}

/// Adyen's banking and management webhooks: `HmacSignature: {base64}`, HMAC-SHA256 of the body. The key is the hex that
/// Adyen shows.
///
/// **Id:** the digest of the body, which contains the time of the event. **Retries** go on for 30 days, so a retention
/// of 7 days causes a warning.
///
/// ```no_run
/// use tower_webhook::scheme;
///
/// let adyen_banking = scheme::adyen_banking(std::env::var("ADYEN_BANKING_HMAC_KEY")?)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If a secret is not hex.
pub fn adyen_banking(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("adyen-banking")
        .signature("hmacsignature", "{base64}")
        .secret_encoding(Encoding::Hex)
        .id_source(IdSource::body_digest())
        .sender_timeout(seconds(10))
        .retry_window(RETRIES)
        .build(secrets)
}

/// The paths to the fields of a payment webhook.
#[derive(Clone)]
struct PaymentPaths {
    items: JsonPath,
    item: JsonPath,
    additional: JsonPath,
    signature: JsonPath,
    signed: [JsonPath; 8],
}

impl PaymentPaths {
    fn new() -> Result<Self, ConfigError> {
        let signed: Vec<JsonPath> = SIGNED_FIELDS.iter().map(|path| json_path(path)).collect::<Result<_, _>>()?;
        Ok(Self {
            items: json_path("notificationItems")?,
            item: json_path("NotificationRequestItem")?,
            additional: json_path("additionalData")?,
            signature: json_path("additionalData.hmacSignature")?,
            signed: signed.try_into().map_err(|_| ConfigError::scheme("eight fields are signed"))?,
        })
    }

    fn proofs(&self, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
        let items = self.items(body).ok_or(MALFORMED)?;
        let (mut proofs, mut all) = (Vec::with_capacity(items.len()), Sha256::new());
        for item in items {
            let [signature] = json_body::read(item.as_bytes(), [&self.signature]).map_err(|_| MALFORMED)?;
            let signature = signature.text().filter(|text| !text.is_empty()).ok_or(RejectionKind::MissingSignature)?;
            let message = self.message(item).ok_or(MALFORMED)?;
            // Hashed with its length, so that two items never equal one.
            all.update((message.len() as u64).to_le_bytes());
            all.update(&message);
            let mut proof = Proof::of(message.as_bytes());
            proof.add(Algorithm::HmacSha256, Encoding::Base64, signature.as_bytes());
            proofs.push(proof);
        }
        // The first proof carries the id for all: every one of them must hold.
        let first = proofs.first_mut().ok_or(RejectionKind::MissingSignature)?;
        *first = std::mem::take(first).id(hex::encode(all.finalize()));
        Ok(proofs)
    }

    fn items<'a>(&self, body: &'a [u8]) -> Option<Vec<&'a str>> {
        let [Field::Other(items)] = json_body::read(body, [&self.items]).ok()? else { return None };
        json_body::elements(items)?
            .map(|item| match json_body::read(item.as_bytes(), [&self.item]) {
                Ok([Field::Other(item)]) => Some(item),
                _ => None,
            })
            .collect()
    }

    fn message(&self, item: &str) -> Option<String> {
        let fields = json_body::read(item.as_bytes(), self.signed.each_ref()).ok()?;
        let texts = fields.map(|field| match field {
            Field::Text(text) => text,
            Field::Absent | Field::Other("null") => Cow::Borrowed(""),
            Field::Other(raw) => Cow::Borrowed(raw),
        });
        Some(texts.join(":"))
    }

    fn event_code(&self, body: &[u8]) -> Option<String> {
        let [_, _, _, _, _, _, event_code, _] = &self.signed;
        let items = self.items(body)?;
        let [code] = json_body::read(items.first()?.as_bytes(), [event_code]).ok()?;
        code.text().map(Cow::into_owned)
    }

    fn sign(&self, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
        let no_items = || ConfigError::scheme("adyen signs items: the body needs notificationItems");
        let key = secrets.first_active(message.signed_at)?;
        let text = std::str::from_utf8(message.body()).map_err(|_| no_items())?;
        let (mut body, mut rest) = (String::new(), text);
        for item in self.items(text.as_bytes()).ok_or_else(no_items)? {
            let tag = key.sign(&[self.message(item).ok_or_else(no_items)?.as_bytes()])?;
            let (before, after) = body::around(rest, item);
            body += before;
            body += &self.with_signature(item, &Encoding::Base64.write(&tag)).ok_or_else(no_items)?;
            rest = after;
        }
        *message.request.body_mut() = (body + rest).into();
        Ok(())
    }

    /// Returns the item with this signature in its additional data.
    fn with_signature(&self, item: &str, signature: &str) -> Option<String> {
        let quoted = format!("\"{signature}\"");
        match json_body::read(item.as_bytes(), [&self.additional]).ok()? {
            [Field::Other(additional)] => {
                let (before, after) = body::around(item, additional);
                Some([before, &body::with_json_member(additional, "hmacSignature", &quoted)?, after].concat())
            }
            _ => body::with_json_member(item, "additionalData", &format!("{{\"hmacSignature\":{quoted}}}")),
        }
    }
}

const MALFORMED: Rejection = Rejection::malformed("the body has no readable notificationItems");
