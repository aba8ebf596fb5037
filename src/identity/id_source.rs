use std::fmt;
use std::sync::Arc;

use super::json_body::JsonPath;
use super::value_source::{Coverage, ValueSource, write_chain};
use crate::error::ConfigError;
use crate::head::Head;

/// Where an event's id comes from: a place, or several to be tried in turn. The default is the top-level `id` of a JSON body.
///
/// Its `Display` says it in words.
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

/// One place of a chain.
#[derive(Clone)]
pub(super) struct IdCandidate {
    pub(super) source: ValueSource,
    authenticated: bool,
    /// Whether the event's type is a part of the id.
    pub(super) typed: bool,
    /// What people are told instead of the place's own words.
    description: Option<Arc<str>>,
}

impl IdSource {
    /// A string in the JSON body, by the keys that lead to it: `id`, `event.id`. Covered by the signature, if that covers the body.
    ///
    /// # Errors
    /// When the path is empty, has an empty key or more than eight.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_signed(ValueSource::json(path)?))
    }

    /// A header that the scheme signs, such as Standard Webhooks' `webhook-id`. Only for schemes that do: nothing here can check
    /// it, and an unsigned header lets a captured delivery be replayed under another id.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn signed_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_signed(ValueSource::header(name)?))
    }

    /// A header that the scheme does not sign, such as `X-GitHub-Delivery`. Recognises the sender's own retries, but
    /// whoever captured a delivery can replay it under another id, unless there is a
    /// [replay guard](crate::WebhookLayer::replay_guard).
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn unsigned_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::from_unsigned(ValueSource::header(name)?))
    }

    /// The SHA-256 of the body, for senders that give no id and never send the same bytes for two events.
    #[must_use]
    pub fn body_digest() -> Self {
        Self::from_signed(ValueSource::BodyDigest)
    }

    /// The id that the scheme itself took out of what it verified. Only for schemes that do.
    #[must_use]
    pub fn signed() -> Self {
        Self::from_signed(ValueSource::SignedId)
    }

    /// Whatever `name` makes of what the signature covers; `None` refuses the delivery with a 400, unless there is
    /// [another place](Self::or) to try.
    pub fn signed_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::from_signed(ValueSource::Closure(Arc::new(name)))
    }

    /// Whatever `name` makes of parts that the signature does not cover; `None` is as in [`IdSource::signed_by`].
    pub fn unsigned_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::from_unsigned(ValueSource::Closure(Arc::new(name)))
    }

    /// No id: the event is not deduplicated. Every delivery of it runs, and nothing of it is stored; nor does a
    /// [replay guard](crate::WebhookLayer::replay_guard) see it. As the last of a chain it takes what has an id nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self::from_signed(ValueSource::NoId)
    }

    /// Tries `other` where this finds nothing: no such field, no such header, a body that is not JSON, a closure's `None`.
    ///
    /// An id that is there but cannot be used (not a string, blank, too long, with control characters, twice) is still
    /// refused: whoever comes next in the chain would take a known event for another one. After [`IdSource::none`] and
    /// [`IdSource::body_digest`], which never find nothing, no place is tried.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.candidates.extend(other.candidates);
        self
    }

    /// Makes the event's type a part of the id, for senders that give two topics the same id, or the same bytes. An absent
    /// type counts as the empty one.
    ///
    /// It holds for every place of the chain so far. The id becomes `{length of the type}:{type}:{id}`, which may have 255
    /// bytes in all; of a body digest, the type is hashed with the body. If the type is not signed, this part of the id is not
    /// either, whatever [`is_authenticated`](Self::is_authenticated) says of the rest: whoever changes it makes another event of
    /// a captured delivery.
    #[must_use]
    pub fn with_type(mut self) -> Self {
        self.candidates.iter_mut().for_each(|candidate| candidate.typed = true);
        self
    }

    /// Says in words what the last place of the chain is, where it cannot itself: a closure, or the scheme's own id.
    #[must_use]
    pub fn described(mut self, description: impl Into<Arc<str>>) -> Self {
        if let Some(candidate) = self.candidates.last_mut() {
            candidate.description = Some(description.into());
        }
        self
    }

    /// Whether the signature covers the id: in a chain, whether it covers every one of its places. Of a scheme that signs less
    /// than the body, [`id_is_authenticated`](crate::WebhookEvent::id_is_authenticated) knows better.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.candidates.iter().all(|candidate| candidate.authenticated)
    }

    /// As [`is_authenticated`](Self::is_authenticated), of a delivery of which this much is signed.
    pub(crate) fn is_authenticated_by(&self, coverage: Coverage) -> bool {
        self.candidates.iter().all(|candidate| candidate.authenticated && candidate.source.is_covered_by(coverage))
    }

    /// Whether the event's type is a part of the id.
    pub(crate) fn is_typed(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.typed)
    }

    /// The same source, of a scheme that signs nothing.
    pub(crate) fn unauthenticated(mut self) -> Self {
        self.candidates
            .iter_mut()
            .for_each(|candidate| candidate.authenticated = matches!(candidate.source, ValueSource::NoId));
        self
    }

    /// Whether one of its places is this header.
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
        // That no id has no type need not be said.
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
