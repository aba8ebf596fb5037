use std::fmt;
use std::sync::Arc;

use super::json_body::JsonPath;
use super::value_source::{Coverage, Place, chain};
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
    pub(super) links: Vec<IdLink>,
}

/// One place of a chain.
#[derive(Clone)]
pub(super) struct IdLink {
    pub(super) place: Place,
    authenticated: bool,
    /// Whether the event's type is a part of the id.
    pub(super) typed: bool,
    /// What people are told instead of the place's own words.
    words: Option<Arc<str>>,
}

impl IdSource {
    /// A string in the JSON body, by the keys that lead to it: `id`, `event.id`. Covered by the signature, if that covers the body.
    ///
    /// # Errors
    /// When the path is empty, has an empty key or more than eight.
    pub fn json(path: &str) -> Result<Self, ConfigError> {
        Ok(Self::signed_place(Place::json(path)?))
    }

    /// A header that the scheme signs, such as Standard Webhooks' `webhook-id`. Only for schemes that do: nothing here can check
    /// it, and an unsigned header lets a captured delivery be replayed under another id.
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn signed_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::signed_place(Place::header(name)?))
    }

    /// A header that the scheme does not sign, such as `X-GitHub-Delivery`. Recognises the sender's own retries, but
    /// whoever captured a delivery can replay it under another id, unless there is a
    /// [replay guard](crate::WebhookLayer::replay_guard).
    ///
    /// # Errors
    /// When that is not the name of a header.
    pub fn unsigned_header(name: &str) -> Result<Self, ConfigError> {
        Ok(Self::unsigned_place(Place::header(name)?))
    }

    /// The SHA-256 of the body, for senders that give no id and never send the same bytes for two events.
    #[must_use]
    pub fn body_digest() -> Self {
        Self::signed_place(Place::BodyDigest)
    }

    /// The id that the scheme itself took out of what it verified. Only for schemes that do.
    #[must_use]
    pub fn signed() -> Self {
        Self::signed_place(Place::Scheme)
    }

    /// Whatever `name` makes of what the signature covers; `None` refuses the delivery with a 400, unless there is
    /// [another place](Self::or) to try.
    pub fn signed_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::signed_place(Place::Closure(Arc::new(name)))
    }

    /// Whatever `name` makes of parts that the signature does not cover; `None` is as in [`IdSource::signed_by`].
    pub fn unsigned_by(name: impl Fn(&Head<'_>, &[u8]) -> Option<String> + Send + Sync + 'static) -> Self {
        Self::unsigned_place(Place::Closure(Arc::new(name)))
    }

    /// No id: the event is not deduplicated. Every delivery of it runs, and nothing of it is stored; nor does a
    /// [replay guard](crate::WebhookLayer::replay_guard) see it. As the last of a chain it takes what has an id nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self::signed_place(Place::Nowhere)
    }

    /// Tries `other` where this finds nothing: no such field, no such header, a body that is not JSON, a closure's `None`.
    ///
    /// An id that is there but cannot be used (not a string, blank, too long, with control characters, twice) is still
    /// refused: whoever comes next in the chain would take a known event for another one. After [`IdSource::none`] and
    /// [`IdSource::body_digest`], which never find nothing, no place is tried.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.links.extend(other.links);
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
        self.links.iter_mut().for_each(|link| link.typed = true);
        self
    }

    /// Says in words what the last place of the chain is, where it cannot itself: a closure, or the scheme's own id.
    #[must_use]
    pub fn described(mut self, words: impl Into<Arc<str>>) -> Self {
        if let Some(link) = self.links.last_mut() {
            link.words = Some(words.into());
        }
        self
    }

    /// Whether the signature covers the id: in a chain, whether it covers every one of its places. Of a scheme that signs less
    /// than the body, [`id_is_authenticated`](crate::WebhookEvent::id_is_authenticated) knows better.
    #[must_use]
    pub fn is_authenticated(&self) -> bool {
        self.links.iter().all(|link| link.authenticated)
    }

    /// As [`is_authenticated`](Self::is_authenticated), of a delivery of which this much is signed.
    pub(crate) fn is_authenticated_by(&self, coverage: Coverage) -> bool {
        self.links.iter().all(|link| link.authenticated && link.place.is_within(coverage))
    }

    /// Whether the event's type is a part of the id.
    pub(crate) fn is_typed(&self) -> bool {
        self.links.iter().any(|link| link.typed)
    }

    /// The same source, of a scheme that signs nothing.
    pub(crate) fn unauthenticated(mut self) -> Self {
        self.links.iter_mut().for_each(|link| link.authenticated = matches!(link.place, Place::Nowhere));
        self
    }

    /// Whether one of its places is this header.
    pub(crate) fn reads(&self, name: &http::HeaderName) -> bool {
        self.links.iter().any(|link| link.place.header_name() == Some(name))
    }

    /// The header that a sender puts the id into.
    #[cfg(feature = "testing")]
    pub(crate) fn header(&self) -> Option<&http::HeaderName> {
        self.links.iter().find_map(|link| link.place.header_name())
    }

    fn signed_place(place: Place) -> Self {
        Self { links: vec![IdLink { place, authenticated: true, typed: false, words: None }] }
    }

    fn unsigned_place(place: Place) -> Self {
        Self { links: vec![IdLink { place, authenticated: false, typed: false, words: None }] }
    }
}

impl Default for IdSource {
    fn default() -> Self {
        Self::signed_place(Place::Json(JsonPath::key("id")))
    }
}

impl fmt::Display for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        chain(f, &self.links)
    }
}

impl fmt::Debug for IdSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IdSource({self})")
    }
}

impl fmt::Display for IdLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.words {
            Some(words) => f.write_str(words)?,
            None => self.place.fmt(f)?,
        }
        // That no id has no type need not be said.
        if self.typed && !matches!(self.place, Place::Nowhere) {
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
