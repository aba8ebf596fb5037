use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};

use super::described::{Handshake, Probe};
use crate::error::ConfigError;
use crate::identity::{IdSource, TypeSource};
use crate::rejection::Rejection;
use crate::scheme::timestamp::Unit;
use crate::scheme::{Encoding, Head, Profile, Tolerance};
use crate::secrets::{Algorithm, Key};

pub(super) type MakeKey = dyn Fn(&str) -> Result<Key, ConfigError> + Send + Sync;

/// Describes a [`Template`](super::Template). Nothing is checked before [`build`](TemplateBuilder::build).
#[must_use]
pub struct TemplateBuilder {
    pub(super) name: Cow<'static, str>,
    pub(super) algorithm: Algorithm,
    pub(super) also: Vec<(String, Algorithm)>,
    pub(super) key: Option<Arc<MakeKey>>,
    pub(super) secret_encoding: Encoding,
    pub(super) families: Vec<Names>,
    pub(super) form: String,
    pub(super) signed: String,
    pub(super) unit: Unit,
    pub(super) body_timestamp: Option<String>,
    pub(super) json_body: bool,
    /// A timestamp or an id was given before the signature that it belongs to.
    pub(super) misplaced: bool,
    pub(super) tolerance: Tolerance,
    pub(super) url: Option<String>,
    pub(super) unescaped: &'static str,
    pub(super) profile: Profile,
    pub(super) id_source: Option<IdSource>,
    pub(super) own_headers: Vec<String>,
    pub(super) probe: Option<Arc<Probe>>,
    pub(super) handshake: Option<Arc<Handshake>>,
}

pub(super) struct Names {
    pub(super) signature: String,
    pub(super) timestamp: Option<String>,
    pub(super) id: Option<String>,
}

impl TemplateBuilder {
    pub(super) fn new(name: Cow<'static, str>) -> Self {
        Self {
            name,
            algorithm: Algorithm::HmacSha256,
            also: Vec::new(),
            key: None,
            secret_encoding: Encoding::Text,
            families: Vec::new(),
            form: String::new(),
            signed: "{body}".to_owned(),
            unit: Unit::Seconds,
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

    /// The header that carries the signature, and how it reads.
    ///
    /// `sha256={hex}` and `{base64}` are one signature with and without a prefix, `{token}` is a token; `v1={hex},…` is a list of
    /// them, of which any may match; `t={timestamp},v1={hex}` is a list with the timestamp in it. A list's separators are the
    /// ones written, its elements may come in any order, and those of other versions are passed over.
    pub fn signature(mut self, header: &str, form: &str) -> Self {
        form.clone_into(&mut self.form);
        self.families.clear();
        self.or_signature(header)
    }

    /// Another header that the same sender may use for the signature; the first one that is there counts. What
    /// [`timestamp`](Self::timestamp) and [`id`](Self::id) say after this is for deliveries with this header.
    pub fn or_signature(mut self, header: &str) -> Self {
        let names = Names { signature: header.to_owned(), timestamp: None, id: None };
        self.families.push(names);
        self
    }

    /// The header that carries the timestamp, in unix seconds.
    pub fn timestamp(mut self, header: &str) -> Self {
        match self.families.last_mut() {
            Some(names) => names.timestamp = Some(header.to_owned()),
            None => self.misplaced = true,
        }
        self
    }

    /// Timestamps are in unix milliseconds.
    pub fn in_millis(mut self) -> Self {
        self.unit = Unit::Millis;
        self
    }

    /// The field of a JSON body that is the timestamp. It is checked once the body is here.
    pub fn body_timestamp(mut self, path: &str) -> Self {
        self.body_timestamp = Some(path.to_owned());
        self
    }

    /// Refuses bodies that are not JSON, empty ones excepted: for a scheme that puts nothing between the body and what is signed
    /// beside it, so that a part of one cannot be passed off as a part of the other.
    pub fn json_body(mut self) -> Self {
        self.json_body = true;
        self
    }

    /// The header that carries the event's id, for a scheme that signs it.
    pub fn id(mut self, header: &str) -> Self {
        match self.families.last_mut() {
            Some(names) => names.id = Some(header.to_owned()),
            None => self.misplaced = true,
        }
        self
    }

    /// What is signed: literals, `{timestamp}`, `{id}`, `{url}`, `{method}` and `{body}`, which is the default.
    pub fn signed(mut self, text: &str) -> Self {
        text.clone_into(&mut self.signed);
        self
    }

    /// The endpoint's URL as the sender knows it, for a scheme that signs it. Without a path, the path and the query are
    /// those of the request; with a path, the query is; with a query, it is taken as it is.
    pub fn url(mut self, url: &str) -> Self {
        self.url = Some(url.to_owned());
        self
    }

    /// Characters whose escapes in the URL the sender undoes before it signs.
    pub fn url_unescaped(mut self, characters: &'static str) -> Self {
        self.unescaped = characters;
        self
    }

    /// What signatures are computed with (default HMAC-SHA256).
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = algorithm;
        self
    }

    /// Another version that may stand in the same list, computed with another algorithm.
    pub fn or_version(mut self, version: &str, algorithm: Algorithm) -> Self {
        self.also.push((version.to_owned(), algorithm));
        self
    }

    /// How the secret's text spells the key (default: it is the key).
    pub fn secret_encoding(mut self, encoding: Encoding) -> Self {
        self.secret_encoding = encoding;
        self
    }

    /// Makes the key of the secret's text, where more than an encoding is needed.
    pub fn key(mut self, key: impl Fn(&str) -> Result<Key, ConfigError> + Send + Sync + 'static) -> Self {
        self.key = Some(Arc::new(key));
        self
    }

    /// How far timestamps may be from now (default 300 s both ways).
    pub fn tolerance(mut self, tolerance: impl Into<Tolerance>) -> Self {
        self.tolerance = tolerance.into();
        self
    }

    /// Where the event's id is (default: the signed id, else the top-level `id`).
    pub fn id_source(mut self, source: IdSource) -> Self {
        self.id_source = Some(source);
        self
    }

    /// Where the event's type is (default: the top-level `type`).
    pub fn type_source(mut self, source: TypeSource) -> Self {
        self.profile.event_type = source;
        self
    }

    /// The sender's own headers, by name (`x-event-key`) or by how they begin (`x-acme-*`): an inbox keeps them for the handlers,
    /// without signatures and tokens. It keeps those of the timestamp, the id and the type anyway.
    pub fn own_headers<'a>(mut self, headers: impl IntoIterator<Item = &'a str>) -> Self {
        self.own_headers.extend(headers.into_iter().map(str::to_owned));
        self
    }

    /// How long the sender waits for an answer.
    pub fn sender_timeout(mut self, timeout: Duration) -> Self {
        self.profile.sender_timeout = Some(timeout);
        self
    }

    /// How long the sender goes on retrying.
    pub fn retry_window(mut self, window: Duration) -> Self {
        self.profile.retry_window = Some(window);
        self
    }

    /// The largest body that the sender sends, where that is more than 1 MiB.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.profile.body_limit = Some(bytes);
        self
    }

    /// The status of a refusal that this sender wants instead of 401.
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

    /// Answers signed deliveries that are no events, as in [`Scheme::handshake`](crate::scheme::Scheme::handshake).
    pub fn handshake<H>(mut self, handshake: H) -> Self
    where
        H: Fn(&[u8], &Key) -> Option<Response<Bytes>> + Send + Sync + 'static,
    {
        self.handshake = Some(Arc::new(handshake));
        self
    }
}
