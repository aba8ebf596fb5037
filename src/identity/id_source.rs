use std::fmt;
use std::sync::Arc;

use super::json_body::JsonPath;
use super::value_source::{Coverage, ValueSource, write_chain};
use crate::error::ConfigError;
use crate::head::Head;

/// Defines where an event's id is: one source, or several that are tried in order. The default is the top-level `id` of
/// a JSON body.
///
/// `Display` describes it in words.
///
/// ```
/// use tower_webhook::identity::IdSource;
///
/// // By `event_id` where there is one; what comes without runs at every delivery.
/// let id = IdSource::json("event_id")?.or(IdSource::none());
/// assert_eq!(id.to_string(), "json event_id or none");
/// # Ok::<(), tower_webhook::ConfigError>(())
/// ```
#[derive(Clone)]
pub struct IdSource {
    /// Never empty.
    pub(super) candidates: Vec<IdCandidate>,
}

/// One source of a chain.
#[derive(Clone)]
pub(super) struct IdCandidate {
    pub(super) source: ValueSource,
    authenticated: bool,
    /// Whether the event's type is part of the id.
    pub(super) typed: bool,
    /// Shown in place of the source's own description.
    description: Option<Arc<str>>,
}

impl IdSource {
    /// A string in the JSON body, by the path of keys to it: `id`, `event.id`. The signature covers it if it covers the
    /// body.
    ///
    /// # Errors
    /// If the path is empty, has an empty key, or has more than eight keys.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_signed(ValueSource::json(path)?))
    }

    /// A header that the scheme signs, such as Standard Webhooks' `webhook-id`. Use it only with such a scheme: this
    /// crate cannot check it, and an unsigned header lets a captured delivery be replayed under another id.
    ///
    /// # Errors
    /// If `name` is not a valid header name.
    pub fn signed_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_signed(ValueSource::header(name)?))
    }

    /// A header that the scheme does not sign, such as `X-GitHub-Delivery`. It recognises the sender's own retries, but
    /// an attacker can replay a captured delivery under another id, unless there is a [replay
    /// guard](crate::WebhookLayer::replay_guard).
    ///
    /// # Errors
    /// If `name` is not a valid header name.
    pub fn unsigned_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_unsigned(ValueSource::header(name)?))
    }

    /// The SHA-256 of the body, for senders that give no id and never send the same bytes for two events.
    #[must_use]
    pub fn body_digest() -> Self {
        Self::from_signed(ValueSource::BodyDigest)
    }

    /// The id that the scheme itself extracts from the signed content. Use it only with a scheme that does so.
    #[must_use]
    pub fn signed() -> Self {
        Self::from_signed(ValueSource::SignedId)
    }

    /// The id that `name` returns, computed from content that the signature covers. `None` refuses the delivery with a
    /// 400, unless the chain has [another source](Self::or).
    pub fn signed_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::from_signed(ValueSource::Closure(Arc::new(name)))
    }

    /// The id that `name` returns, computed from content that the signature does not cover. `None` is as in
    /// [`IdSource::signed_by`].
    pub fn unsigned_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::from_unsigned(ValueSource::Closure(Arc::new(name)))
    }

    /// No id: the event is not deduplicated. Every delivery of it runs, nothing of it is stored, and the [replay
    /// guard](crate::WebhookLayer::replay_guard) does not see it. As the last source of a chain it accepts deliveries
    /// without an id.
    #[must_use]
    pub fn none() -> Self {
        Self::from_signed(ValueSource::NoId)
    }

    /// Tries `other` if this source finds nothing: the field or the header is absent, the body is not JSON, or the
    /// closure returns `None`.
    ///
    /// An id that is present but unusable (not a string, blank, too long, with control characters, repeated) is still
    /// refused, since the next source of the chain would take a known event for another one. [`IdSource::none`] and
    /// [`IdSource::body_digest`] always find something, so no source after them is tried.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.candidates.extend(other.candidates);
        self
    }

    /// Makes the event's type part of the id, for senders that give two topics the same id, or the same bytes. An
    /// absent type counts as the empty one.
    ///
    /// It applies to every source of the chain so far. The id becomes `{length of the type}:{type}:{id}`, of at most
    /// 255 bytes in all; in a body digest, the type is hashed with the body. If the type is not signed, this part of
    /// the id is not signed either, whatever [`is_authenticated`](Self::is_authenticated) says of the rest: an attacker
    /// who changes the type turns a captured delivery into another event.
    #[must_use]
    pub fn with_type(mut self) -> Self {
        self.candidates.iter_mut().for_each(|candidate| candidate.typed = true);
        self
    }

    /// Describes the last source of the chain in words, for sources that cannot describe themselves: a closure, or the
    /// scheme's own id.
    #[must_use]
    pub fn described(mut self, description: impl Into<Arc<str>>) -> Self {
        if let Some(candidate) = self.candidates.last_mut() {
            candidate.description = Some(description.into());
        }
        self
    }

    /// Whether the signature covers the id. In a chain, it must cover every source. If the scheme signs less than the
    /// body, [`id_is_authenticated`](crate::WebhookEvent::id_is_authenticated) is more precise.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.authenticated)
    }

    /// As [`is_authenticated`](Self::is_authenticated), for a delivery with this coverage.
    pub(crate) fn is_authenticated_by(&self, coverage: Coverage) -> bool {
        self.candidates.iter().all(|candidate| candidate.authenticated && candidate.source.is_covered_by(coverage))
    }

    /// Whether the event's type is part of the id.
    pub(crate) fn is_typed(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.typed)
    }

    /// Whether one body may come under two ids.
    pub(crate) fn is_beside_the_body(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.source.is_beside_the_body())
    }

    /// Returns the same source for a scheme that signs nothing.
    pub(crate) fn unauthenticated(mut self) -> Self {
        self.candidates
            .iter_mut()
            .for_each(|candidate| candidate.authenticated = matches!(candidate.source, ValueSource::NoId));
        self
    }

    /// Whether one of the sources is this header.
    pub(crate) fn reads(&self, name: &http::HeaderName) -> bool {
        self.candidates.iter().any(|candidate| candidate.source.header_name() == Some(name))
    }

    /// The header that a sender puts the id into.
    #[cfg(feature = "testing")]
    pub(crate) fn header(&self) -> Option<&http::HeaderName> {
        self.candidates.iter().find_map(|candidate| candidate.source.header_name())
    }

    fn from_signed(source: ValueSource) -> Self {
        Self { candidates: vec![IdCandidate { source, authenticated: true, typed: false, description: None }] }
    }

    fn from_unsigned(source: ValueSource) -> Self {
        Self { candidates: vec![IdCandidate { source, authenticated: false, typed: false, description: None }] }
    }
}

impl Default for IdSource {
    fn default() -> Self {
        Self::from_signed(ValueSource::Json(JsonPath::key("id")))
    }
}

impl fmt::Display for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_chain(f, &self.candidates)
    }
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdSource({self})")
    }
}

impl fmt::Display for IdCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => f.write_str(description)?,
            None => self.source.fmt(f)?,
        }
        // An absent id has no type.
        if self.typed && !matches!(self.source, ValueSource::NoId) {
            f.write_str(" with the type")?;
        }
        f.write_str(if self.authenticated { "" } else { " (unsigned)" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(path: &str) -> IdSource {
        IdSource::json(path).expect(path)
    }

    fn unsigned(name: &str) -> IdSource {
        IdSource::unsigned_header(name).expect(name)
    }

    #[test]
    fn sources_read_as_words() {
        for (source, words) in [
            (json("event_id"), "json event_id"),
            (IdSource::default(), "json id"),
            (unsigned("X-GitHub-Delivery"), "header x-github-delivery (unsigned)"),
            (IdSource::signed_header("webhook-id").expect("a name"), "header webhook-id"),
            (IdSource::body_digest(), "digest of the body"),
            (IdSource::body_digest().with_type(), "digest of the body with the type"),
            (IdSource::signed(), "signed id of the scheme"),
            (IdSource::signed_by(|_, _| None), "closure"),
            (json("a").or(IdSource::unsigned_by(|_, _| None).described("the b")), "json a or the b (unsigned)"),
            (IdSource::unsigned_by(|_, _| None).with_type(), "closure with the type (unsigned)"),
            (IdSource::none(), "none"),
            (json("a").or(json("b.c")).or(IdSource::none()), "json a or json b.c or none"),
            (json("a").with_type().or(unsigned("b")), "json a with the type or header b (unsigned)"),
            (
                json("a").or(json("b").or(IdSource::none())).with_type(),
                "json a with the type or json b with the type or none",
            ),
        ] {
            assert_eq!(source.to_string(), words);
            assert_eq!(format!("{source:?}"), format!("IdSource({words})"));
        }
    }

    #[test]
    fn chain_is_authenticated_if_every_place_is() {
        assert!(json("a").or(IdSource::signed()).or(IdSource::body_digest()).or(IdSource::none()).is_authenticated());
        assert!(!json("a").or(unsigned("b")).is_authenticated());
        assert!(!unsigned("b").or(json("a")).with_type().is_authenticated());
    }

    #[test]
    fn what_is_not_signed_authenticates_nothing() {
        let header = || IdSource::signed_header("a").expect("a name");
        for (source, by_message, by_nothing) in [
            (json("a"), false, false),
            (header(), false, false),
            (IdSource::body_digest(), false, false),
            (IdSource::signed_by(|_, _| None), false, false),
            (IdSource::signed(), true, false),
            (IdSource::signed().or(json("a")), false, false),
            (IdSource::signed().or(IdSource::none()), true, false),
            (IdSource::none(), true, true),
        ] {
            assert!(source.is_authenticated_by(Coverage::Body), "{source}");
            assert_eq!(source.is_authenticated_by(Coverage::Message), by_message, "{source}");
            assert_eq!(source.is_authenticated_by(Coverage::Nothing), by_nothing, "{source}");
        }
        assert!(!unsigned("b").is_authenticated_by(Coverage::Body));
    }
}
