use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::signature_format::SignatureFormat;
use super::signed_text::SignedText;
use super::template::{Handshake, HeaderSet, Probe, ProofHeader, Template};
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource, json_path};
use crate::rejection::Rejection;
use crate::scheme::public_url::PublicUrl;
use crate::scheme::timestamp::TimestampUnit;
use crate::scheme::{Encoding, Head, HeaderPattern, Profile, Tolerance};
use crate::secrets::{Algorithm, IntoSecrets, Key, Secrets};

impl Template {
    /// Describes a scheme. It signs the body with HMAC-SHA256 under the secret's text, unless configured otherwise.
    pub fn builder(name: impl Into<Cow<'static, str>>) -> TemplateBuilder {
        TemplateBuilder::new(name.into())
    }
}

type MakeKey = dyn Fn(&str) -> Result<Key, ConfigError> + Send + Sync;

/// Builds a [`Template`]. Nothing is validated before [`build`](TemplateBuilder::build).
#[must_use]
pub struct TemplateBuilder {
    name: Cow<'static, str>,
    algorithm: Algorithm,
    other_versions: Vec<(String, Algorithm)>,
    key: Option<Arc<MakeKey>>,
    api_keys: Option<ApiKeys>,
    secret_encoding: Encoding,
    header_sets: Vec<HeaderSetNames>,
    format: String,
    signed: String,
    unit: TimestampUnit,
    body_timestamp: Option<String>,
    json_body: bool,
    /// A timestamp or an id was given before the signature that it belongs to.
    misplaced: bool,
    tolerance: Tolerance,
    url: Option<String>,
    unescaped: &'static str,
    profile: Profile,
    id_source: Option<IdSource>,
    own_headers: Vec<String>,
    probe: Option<Arc<Probe>>,
    handshake: Option<Arc<Handshake>>,
}

struct HeaderSetNames {
    signature: String,
    timestamp: Option<String>,
    id: Option<String>,
}

impl TemplateBuilder {
    fn new(name: Cow<'static, str>) -> Self {
        Self {
            name,
            algorithm: Algorithm::HmacSha256,
            other_versions: Vec::new(),
            key: None,
            api_keys: None,
            secret_encoding: Encoding::Text,
            header_sets: Vec::new(),
            format: String::new(),
            signed: "{body}".to_owned(),
            unit: TimestampUnit::Seconds,
            body_timestamp: None,
            json_body: false,
            misplaced: false,
            tolerance: Tolerance::default(),
            url: None,
            unescaped: "",
            profile: Profile::default(),
            id_source: None,
            own_headers: Vec::new(),
            probe: None,
            handshake: None,
        }
    }

    /// Sets the header that carries the signature, and its format.
    ///
    /// `sha256={hex}` and `{base64}` are one signature with and without a prefix, and `{token}` is a token.
    /// `v1={hex},…` is a list of signatures, of which any may match. `t={timestamp},v1={hex}` is a list that contains
    /// the timestamp. A list's separators are the ones written, its elements may come in any order, and those of other
    /// versions are skipped.
    pub fn signature(mut self, header: &str, format: &str) -> Self {
        format.clone_into(&mut self.format);
        self.header_sets.clear();
        self.or_signature(header)
    }

    /// Adds another header that the same sender may use for the signature. The first one that is present counts.
    /// [`timestamp`](Self::timestamp) and [`id`](Self::id) after this call apply to deliveries with this header.
    pub fn or_signature(mut self, header: &str) -> Self {
        let names = HeaderSetNames { signature: header.to_owned(), timestamp: None, id: None };
        self.header_sets.push(names);
        self
    }

    /// Sets the header that carries the timestamp, in unix seconds.
    pub fn timestamp(mut self, header: &str) -> Self {
        match self.header_sets.last_mut() {
            Some(names) => names.timestamp = Some(header.to_owned()),
            None => self.misplaced = true,
        }
        self
    }

    /// Reads timestamps as unix milliseconds.
    pub fn in_millis(mut self) -> Self {
        self.unit = TimestampUnit::Millis;
        self
    }

    /// Sets the field of a JSON body that is the timestamp. It is checked once the body has arrived.
    pub fn body_timestamp(mut self, path: &str) -> Self {
        self.body_timestamp = Some(path.to_owned());
        self
    }

    /// Refuses bodies that are not JSON, except empty ones. This is for a scheme that signs the body next to other
    /// content without a separator, so that no part of one can be passed off as a part of the other.
    pub fn json_body(mut self) -> Self {
        self.json_body = true;
        self
    }

    /// Sets the header that carries the event's id, for a scheme that signs it.
    pub fn id(mut self, header: &str) -> Self {
        match self.header_sets.last_mut() {
            Some(names) => names.id = Some(header.to_owned()),
            None => self.misplaced = true,
        }
        self
    }

    /// Sets the signed text: literals, `{timestamp}`, `{id}`, `{url}`, `{method}` and `{body}`, which is the default.
    pub fn signed(mut self, text: &str) -> Self {
        text.clone_into(&mut self.signed);
        self
    }

    /// Sets the endpoint's URL as the sender knows it, for a scheme that signs it. A URL without a path takes the path
    /// and the query from the request. A URL with a path takes the query. A URL with a query is used as it is.
    pub fn url(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// Sets characters whose escapes in the URL the sender decodes before it signs.
    pub fn url_unescaped(mut self, characters: &'static str) -> Self {
        self.unescaped = characters;
        self
    }

    /// Sets the algorithm of the signatures (default HMAC-SHA256).
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Accepts another version in the same list, computed with another algorithm.
    pub fn or_version(mut self, version: &str, algorithm: Algorithm) -> Self {
        self.other_versions.push((version.to_owned(), algorithm));
        self
    }

    /// Sets the encoding of the key in the secret's text (default: the text is the key).
    pub fn secret_encoding(mut self, encoding: Encoding) -> Self {
        self.secret_encoding = encoding;
        self
    }

    /// Sets how a key is made from the secret's text, if it takes more than an encoding.
    pub fn key(mut self, key: impl Fn(&str) -> Result<Key, ConfigError> + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// Refuses secrets that begin like the provider's API keys, and says where the signing secret is instead.
    pub(crate) fn api_keys(mut self, prefixes: &'static [&'static str], instead: &'static str) -> Self {
        self.api_keys = Some(ApiKeys { prefixes, instead });
        self
    }

    /// Sets how far timestamps may be from now (default 300 s in both directions).
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }

    /// Sets where the event's id is (default: the signed id, else the top-level `id`).
    pub fn id_source(mut self, source: IdSource) -> Self {
        self.id_source = Some(source);
        self
    }

    /// Sets where the event's type is (default: the top-level `type`).
    pub fn type_source(mut self, source: TypeSource) -> Self {
        self.profile.event_type = source;
        self
    }

    /// Sets the sender's own headers, by name (`x-event-key`) or by prefix (`x-acme-*`). An inbox keeps them for the
    /// handlers, without signatures and tokens. It keeps those of the timestamp, the id and the type anyway.
    pub fn own_headers<'a>(mut self, headers: impl IntoIterator<Item = &'a str>) -> Self {
        self.own_headers.extend(headers.into_iter().map(str::to_owned));
        self
    }

    /// Sets how long the sender waits for a response.
    pub fn sender_timeout(mut self, timeout: Duration) -> Self {
        self.profile.sender_timeout = Some(timeout);
        self
    }

    /// Sets how long the sender keeps retrying.
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.profile.retry_window = Some(window);
        self
    }

    /// Sets the largest body that the sender sends, if it is more than 1 MiB.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.profile.body_limit = Some(bytes);
        self
    }

    /// Sets the status of a refusal, if this sender expects another than 401.
    pub fn refusal_status(mut self, status: StatusCode) -> Self {
        self.profile = self.profile.refusal_status(status);
        self
    }

    /// Answers unsigned requests of other methods, as in [`Scheme::probe`](crate::scheme::Scheme::probe).
    pub fn probe<P>(mut self, probe: P) -> Self
    where
        P: Fn(&Head<'_>) -> Option<Result<Response<Bytes>, Rejection>> + Send + Sync + 'static,
    {
        self.probe = Some(Arc::new(probe));
        self
    }

    /// Answers signed deliveries that are not events, as in [`Scheme::handshake`](crate::scheme::Scheme::handshake).
    pub fn handshake<H>(mut self, handshake: H) -> Self
    where
        H: Fn(&[u8], &Key) -> Option<Response<Bytes>> + Send + Sync + 'static,
    {
        self.handshake = Some(Arc::new(handshake));
        self
    }

    /// Builds the scheme with these secrets.
    ///
    /// # Errors
    /// If the description is invalid or incomplete, or if a secret is invalid.
    pub fn build(self, secrets: impl IntoSecrets) -> Result<Template, ConfigError> {
        let (algorithm, encoding, key, api_keys) = (self.algorithm, self.secret_encoding, self.key, self.api_keys);
        let make_key = move |text: &str| {
            api_keys.map_or(Ok(()), |api_keys| api_keys.refuse(text))?;
            match &key {
                Some(key) => key(text),
                None => Key::new(algorithm, &encoding.secret(text)?),
            }
        };
        if self.misplaced {
            return Err(ConfigError::scheme("call timestamp and id after the signature that they belong to"));
        }
        let mut format = SignatureFormat::parse(&self.format, algorithm)?;
        for (version, algorithm) in &self.other_versions {
            format.add_version(version, *algorithm)?;
        }
        let signed = SignedText::parse(&self.signed)?;
        let own_headers = self.own_headers.iter().map(|text| HeaderPattern::new(text));
        let mut profile = self.profile.own_headers(own_headers.collect::<Result<Vec<_>, _>>()?);
        let signed_id = self
            .header_sets
            .iter()
            .find_map(|names| names.id.as_deref())
            .map(|name| IdSource::signed().described(format!("header {name}")));
        if let Some(source) = self.id_source.or(signed_id) {
            profile.id = source;
        }
        if algorithm == Algorithm::Token {
            profile.id = profile.id.unauthenticated();
        }
        let url = self.url.as_deref().map(PublicUrl::new).transpose()?;
        profile.signs_url = url.is_some();
        let template = Template {
            algorithm,
            header_sets: self.header_sets.iter().map(HeaderSetNames::parse).collect::<Result<_, _>>()?,
            format,
            signed,
            unit: self.unit,
            body_timestamp: self.body_timestamp.as_deref().map(json_path).transpose()?,
            // An attacker who knows such a digest can append to its message, but the result is not JSON.
            json_body: self.json_body || algorithm == Algorithm::KeyedSha256,
            tolerance: self.tolerance,
            url: url.map(|url| url.with_unescaped(self.unescaped)),
            secrets: Secrets::new(secrets, make_key).map_err(|error| error.in_scheme(&self.name))?,
            profile,
            probe: self.probe,
            handshake: self.handshake,
            name: self.name,
        };
        template
            .header_sets
            .iter()
            .try_for_each(|headers| check(&template, headers))
            .map_err(|error| error.in_scheme(&template.name))?;
        Ok(template)
    }
}

/// The keys of a provider's API, which sign no webhook.
#[derive(Clone, Copy)]
struct ApiKeys {
    prefixes: &'static [&'static str],
    /// Where the signing secret is.
    instead: &'static str,
}

impl ApiKeys {
    fn refuse(self, secret: &str) -> Result<(), ConfigError> {
        match self.prefixes.iter().find(|prefix| secret.starts_with(**prefix)) {
            Some(prefix) => {
                let message = format!("a secret begins with {prefix}, as API keys do, and those sign no webhook");
                Err(ConfigError::secret(format!("{message}: take {}", self.instead)))
            }
            None => Ok(()),
        }
    }
}

impl HeaderSetNames {
    fn parse(&self) -> Result<HeaderSet, ConfigError> {
        Ok(HeaderSet {
            signature: ProofHeader::new(&self.signature)?,
            timestamp: self.timestamp.as_deref().map(ProofHeader::new).transpose()?,
            id: self.id.as_deref().map(ProofHeader::new).transpose()?,
        })
    }
}

/// Checks that every part of the signed text has a source, and that every configured part of the head is signed.
fn check(template: &Template, headers: &HeaderSet) -> Result<(), ConfigError> {
    let signed = &template.signed;
    let timestamp = template.format.has_timestamp() || headers.timestamp.is_some();
    let token = template.algorithm == Algorithm::Token;
    let ambiguous = signed.id_separator().is_none_or(|text| text[0].is_ascii_digit());
    let mistakes = [
        (token && !signed.is_empty(), "a token signs nothing: write signed(\"\")"),
        (!token && !signed.covers_body(), "{body} must be signed, or any body would be accepted"),
        (signed.has_timestamp() && !timestamp, "{timestamp} is signed: say where it comes from"),
        (timestamp && !signed.has_timestamp(), "the timestamp proves nothing unless {timestamp} is signed"),
        (
            timestamp && template.body_timestamp.is_some(),
            "there is a timestamp in the head and one in the body: drop one",
        ),
        (signed.has_id() && headers.id.is_none(), "{id} is signed: say where it comes from"),
        (!signed.has_id() && headers.id.is_some(), "the id proves nothing unless {id} is signed"),
        (signed.has_id() && ambiguous, "an id could be split elsewhere: sign {id}.{timestamp}.{body}, or the like"),
        (signed.has_url() && template.url.is_none(), "{url} is signed: say where it comes from"),
        (!signed.has_url() && template.url.is_some(), "the url proves nothing unless {url} is signed"),
    ];
    match mistakes.iter().find(|(made, _)| *made) {
        Some((_, what)) => Err(ConfigError::scheme(*what)),
        None => Ok(()),
    }
}
