use std::borrow::Cow;

use http::header::CONTENT_TYPE;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, StatusCode, Uri};
use sha2::{Digest, Sha256};

use super::common::seconds;
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::body::{form_pairs, form_value};
use crate::scheme::public_url::PublicUrl;
use crate::scheme::{Custom, Encoding, Head, HeaderPattern, Outgoing, Profile, Proof};
use crate::secrets::{Algorithm, IntoSecrets, Key, SecretSet, Secrets};

const SIGNATURE: HeaderName = HeaderName::from_static("x-twilio-signature");
const BODY_DIGEST: &str = "bodySHA256";

/// The parameters are sorted before the signature is verified, so their number is limited.
const MAX_PARAMETERS: usize = 1_000;

/// Twilio: `X-Twilio-Signature: {base64}`, HMAC-SHA1 of the public `url`, followed by the form's parameters, sorted. A
/// body that is not a form is covered by its SHA-256 in the URL's `bodySHA256`. A body that is neither a form nor
/// covered is refused.
///
/// `url` is the one configured at Twilio: [`url`](crate::scheme::TemplateBuilder::url) says which parts it may leave to
/// the request. Twilio signs with or without the port, so both are tried. It puts no separator between the URL, the
/// names and the values, so the signature covers neither their boundaries nor their order. A URL that is configured
/// with its query leaves the least room. Values from a form therefore do not count as authenticated.
///
/// **Id:** `I-Twilio-Idempotency-Token`, not signed. Without it nothing is deduplicated: a caller may press one key
/// twice, and both requests are the same bytes. **Replays** under another token pass, or without one. The replay guard
/// only refuses the former, and with them such repeated requests. **Refusals:** 400 without a signature, 403 for a
/// wrong one. The response to a duplicate is empty, so TwiML belongs in
/// [`answer_duplicates`](crate::WebhookLayer::answer_duplicates). **Reported:** the id's header; Twilio waits 15 s and
/// retries once by default.
///
/// # Errors
/// If a secret or the URL is invalid.
#[cfg(feature = "sha1")]
pub fn twilio(secrets: impl IntoSecrets, url: &str) -> Result<Custom, ConfigError> {
    Variant { name: "twilio", algorithm: Algorithm::HmacSha1, signs: SHA1 }.scheme(secrets, url)
}

/// Twilio with a SharedKey: as `twilio`, but HMAC-SHA256, under a key made for webhooks in place of the auth token.
///
/// A Webhook Setting names the key and the algorithm, and Twilio announces both in
/// `X-Twilio-Webhooks-Signature-Settings`. This scheme does not read that header: it takes HMAC-SHA256 and nothing
/// else, so that no sender chooses what it is verified with. During a change of keys, give it the old one and the new
/// one. An endpoint that still gets deliveries signed with the auth token needs a route for them with `twilio`.
///
/// **Id**, **Replays**, **Refusals** and **Reported:** as with `twilio`. Twilio calls SharedKeys a public beta.
///
/// # Errors
/// If a secret or the URL is invalid.
pub fn twilio_shared_key(secrets: impl IntoSecrets, url: &str) -> Result<Custom, ConfigError> {
    Variant { name: "twilio-shared-key", algorithm: Algorithm::HmacSha256, signs: SHA256 }.scheme(secrets, url)
}

#[cfg(feature = "sha1")]
const SHA1: &str = "HMAC-SHA1 of {url}, then the form's parameters, sorted";
const SHA256: &str = "HMAC-SHA256 of {url}, then the form's parameters, sorted";

/// The differences between Twilio's two schemes.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    algorithm: Algorithm,
    signs: &'static str,
}

impl Variant {
    fn scheme(self, secrets: impl IntoSecrets, url: &str) -> Result<Custom, ConfigError> {
        let algorithm = self.algorithm;
        let secrets = Secrets::new(secrets, move |text| Key::new(algorithm, text.as_bytes()))?;
        self.at(PublicUrl::new(url)?, secrets)
    }

    fn at(self, url: PublicUrl, secrets: Secrets) -> Result<Custom, ConfigError> {
        let algorithm = self.algorithm;
        let mut profile = Profile::default()
            .id(IdSource::unsigned_header("i-twilio-idempotency-token")?.or(IdSource::none()))
            .event_type(TypeSource::by_body(event_type))
            .own_headers([HeaderPattern::new("x-twilio-*")?, HeaderPattern::new("i-twilio-*")?])
            .sender_timeout(seconds(15))
            .refusal_status(StatusCode::FORBIDDEN)
            .unsigned_status(StatusCode::BAD_REQUEST);
        profile.signs_url = true;
        let (signing, shown, same) = (url.clone(), url.clone(), secrets.clone());
        Ok(Custom::by_body(self.name, secrets, move |head, body| read(&url, algorithm, head, body))
            .signing(move |message, secrets| sign(&signing, message, secrets))
            .signing_url(
                move |head| Some(signed_url(&shown, head).ok()?.into_owned()),
                move |url| self.at(PublicUrl::exactly(url).ok()?, same.clone()).ok(),
            )
            .required_header(SIGNATURE)
            .described(self.signs)
            .with_profile(profile))
    }
}

fn read(url: &PublicUrl, algorithm: Algorithm, head: &Head<'_>, body: &[u8]) -> Result<Vec<Proof>, Rejection> {
    let signature = head.proof_header(SIGNATURE)?;
    let url = signed_url(url, head)?;
    let parameters = parameters(&url, head.headers(), body)?;
    // A form without a digest can be sorted otherwise, or cut elsewhere, and its signature still holds.
    let is_digested = body_digest(&url).is_some();
    let proof = |url: &str| {
        let mut proof = Proof::of(&[url.as_bytes(), &parameters].concat());
        proof.add(algorithm, Encoding::Base64, signature);
        if is_digested { proof.with_digest_of_body() } else { proof }
    };
    Ok(vec![proof(&url).or(proof(&other_port(&url)))])
}

/// The public URL with the request's `bodySHA256`, which is never part of the configured URL.
fn signed_url<'a>(url: &'a PublicUrl, head: &Head<'_>) -> Result<Cow<'a, str>, Rejection> {
    let url = url.for_request(head)?;
    let sent_to = head.uri().path_and_query().map_or("", PathAndQuery::as_str);
    Ok(match (body_digest(&url), body_digest(sent_to)) {
        (None, Some(digest)) => Cow::Owned(with_digest(&url, digest)),
        _ => url,
    })
}

fn with_digest(url: &str, digest: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}{BODY_DIGEST}={digest}")
}

/// The signed bytes after the URL.
fn parameters(url: &str, headers: &HeaderMap, body: &[u8]) -> Result<Vec<u8>, Rejection> {
    let (digest, is_form) = (body_digest(url), is_form(headers));
    // The digest contains no secret: anyone who sees the URL can compute it.
    if digest.is_some_and(|digest| *digest != hex::encode(Sha256::digest(body))) {
        return Err(RejectionKind::SignatureMismatch.into());
    }
    match is_form {
        true => sorted(body),
        false if digest.is_some() || body.is_empty() => Ok(Vec::new()),
        false => Err(Rejection::malformed(
            "the body is not a form, and the url does not end with a bodySHA256 that covers it",
        )),
    }
}

/// The digest that Twilio puts at the end of the URL, and only there. There is no separator between the URL and a
/// form's parameters, so a text in one of them could be passed off as a parameter of the query.
fn body_digest(url: &str) -> Option<&str> {
    let (_, query) = url.split_once('?')?;
    let (others, last) = query.rsplit_once('&').unwrap_or(("", query));
    let digest = last.strip_prefix(BODY_DIGEST)?.strip_prefix('=')?;
    (digest.len() == 64 && !others.contains(BODY_DIGEST)).then_some(digest)
}

/// Sorts the names in byte order, and the values of each name. Equal pairs count once.
fn sorted(form: &[u8]) -> Result<Vec<u8>, Rejection> {
    let mut parameters: Vec<_> = form_pairs(form).take(MAX_PARAMETERS + 1).collect();
    if parameters.len() > MAX_PARAMETERS {
        return Err(Rejection::malformed("the form has more than 1,000 parameters"));
    }
    parameters.sort_unstable();
    parameters.dedup();
    Ok(parameters.iter().flat_map(|(name, value)| [&**name, &**value]).flatten().copied().collect())
}

/// The same URL without its port, or with the default port of its scheme.
fn other_port(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host_at = authority.rfind('@').map_or(0, |at| at + 1);
    let port_at = authority[host_at..].rfind(':').map(|at| host_at + at);
    // The colons of an IPv6 address are inside its brackets.
    match port_at.filter(|at| !authority[*at..].contains(']')) {
        Some(at) => format!("{scheme}://{}{path}", &authority[..at]),
        None if scheme == "https" => format!("{scheme}://{authority}:443{path}"),
        None => format!("{scheme}://{authority}:80{path}"),
    }
}

fn is_form(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/x-www-form-urlencoded")
}

fn event_type(form: &[u8]) -> Option<String> {
    let status = ["MessageStatus", "CallStatus", "EventType"].iter().find_map(|name| form_value(form, name));
    status.map(Cow::into_owned)
}

fn sign(url: &PublicUrl, message: &mut Outgoing, secrets: &SecretSet) -> Result<(), ConfigError> {
    if !is_form(message.request.headers()) && !message.body().is_empty() {
        let digest = hex::encode(Sha256::digest(message.body()));
        *message.request.uri_mut() = with_body_digest(message.request.uri(), &digest)?;
    }
    let parts = message.parts();
    let url = signed_url(url, &Head::new(&parts, message.signed_at));
    let url = url.map_err(|refused| ConfigError::unsignable(&refused))?.into_owned();
    let parameters =
        parameters(&url, &parts.headers, message.body()).map_err(|refused| ConfigError::unsignable(&refused))?;
    let tag = secrets.first_active(message.signed_at)?.sign(&[url.as_bytes(), &parameters])?;
    message.set_header(&SIGNATURE, &Encoding::Base64.write(&tag))
}

fn with_body_digest(uri: &Uri, digest: &str) -> Result<Uri, ConfigError> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut parts = uri.clone().into_parts();
    let refused = || ConfigError::scheme("a bodySHA256 cannot be added to this uri");
    parts.path_and_query = Some(with_digest(path, digest).parse().map_err(|_| refused())?);
    Uri::from_parts(parts).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_taken_away_or_added() {
        for (url, other) in [
            ("https://a.example/x", "https://a.example:443/x"),
            ("http://a.example?x", "http://a.example:80?x"),
            ("https://a.example:8443/x:1", "https://a.example/x:1"),
            ("https://u:p@a.example/x", "https://u:p@a.example:443/x"),
            ("https://u:p@a.example:1/x", "https://u:p@a.example/x"),
            ("https://[::1]/x", "https://[::1]:443/x"),
            ("https://[::1]:1/x", "https://[::1]/x"),
        ] {
            assert_eq!(other_port(url), other);
        }
    }
}
