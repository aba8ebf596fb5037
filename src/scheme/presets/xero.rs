use bytes::Bytes;
use http::{Response, StatusCode};

use super::{DAY, seconds};
use crate::error::ConfigError;
use crate::identity::envelope::{self, Field, JsonPath};
use crate::identity::{IdSource, TypeSource};
use crate::scheme::Template;
use crate::scheme::handshakes::empty;
use crate::secrets::{IntoSecrets, Key};

/// Xero: `x-xero-signature: {base64}`, HMAC-SHA256 of the body under the webhook key's text. The intent to receive is answered
/// here: 200 when it is signed rightly, 401 and no body when not.
///
/// **Id:** the digest of the body, which has `entropy` in it; should that change with a retry, the retry runs again. **Retries:**
/// over 24 hours; Xero waits 5 s.
///
/// # Errors
/// When a secret cannot be one.
pub fn xero(secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
    Template::builder("xero")
        .signature("x-xero-signature", "{base64}")
        .own_headers(["x-xero-*"])
        .id_source(IdSource::body_digest())
        .type_source(TypeSource::none())
        .sender_timeout(seconds(5))
        .retry_window(DAY)
        .handshake(intent_to_receive)
        .build(secrets)
}

/// Xero's intent to receive: no events, rightly signed.
fn intent_to_receive(body: &[u8], _: &Key) -> Option<Response<Bytes>> {
    let [events] = envelope::read(body, [&JsonPath::key("events")]).ok()?;
    let Field::Other(events) = events else { return None };
    let none = envelope::elements(events)?.next().is_none();
    none.then(|| empty(StatusCode::OK))
}
