use std::borrow::Cow;

use sha2::digest::Output;
use sha2::{Digest, Sha256};

use super::id_source::IdCandidate;
use super::json_body::{self, Field, JsonBodyError, JsonPath};
use super::value_source::ValueSource;
use super::{IdSource, TypeSource};
use crate::head::Head;
use crate::key::{LONGEST_PART, RESERVED, is_name, is_plain};
use crate::rejection::{Rejection, RejectionKind};

/// The id and the type of an event.
#[derive(Debug)]
pub(crate) struct Identity<'a> {
    /// `None` if the event is not to be deduplicated.
    pub(crate) id: Option<Cow<'a, str>>,
    pub(crate) event_type: Option<Cow<'a, str>>,
}

/// Reads the id and the type of a verified delivery. `signed_id` is the id that the scheme extracted.
pub(crate) fn identify<'a>(
    id: &IdSource,
    event_type: &TypeSource,
    head: &Head<'a>,
    body: &'a [u8],
    signed_id: Option<&'a str>,
) -> Result<Identity<'a>, Rejection> {
    // Nearly every configuration is this one, and takes one pass over the body.
    if let ([IdCandidate { source: ValueSource::Json(id), typed: false, .. }], [ValueSource::Json(event_type)]) =
        (&id.candidates[..], &event_type.sources[..])
    {
        let [id, event_type] = json_body::read(body, [id, event_type]).map_err(unparseable)?;
        let id = match id {
            Field::Text(id) => id,
            Field::Absent => return Err(ABSENT),
            Field::Other(_) => return Err(NOT_TEXT),
        };
        check_id(&id)?;
        return Ok(Identity { id: Some(id), event_type: usable_type(event_type.text()) });
    }
    IdentityReader { head, body, signed_id }.identity(id, event_type)
}

const ABSENT: Rejection = invalid("it is absent: set id_source to where this sender puts it");
const NOT_TEXT: Rejection = invalid("it is not a string");

/// The parts of a delivery that contain its id and type.
struct IdentityReader<'a, 'h> {
    head: &'h Head<'a>,
    body: &'a [u8],
    signed_id: Option<&'a str>,
}

/// The result of looking for the id in one source.
enum FoundId<'a> {
    Id(Cow<'a, str>),
    /// The event has no id.
    NoId,
    /// The source has no id, for this reason. The delivery is refused unless another source has one.
    Missing(Rejection),
}

impl<'a> IdentityReader<'a, '_> {
    /// Kept out of line: inlined, it would enlarge the stack frame of the usual case.
    #[inline(never)]
    fn identity(&self, id: &IdSource, event_type: &TypeSource) -> Result<Identity<'a>, Rejection> {
        let event_type = self.event_type(event_type);
        Ok(Identity { id: self.id(id, event_type.as_deref())?, event_type })
    }

    fn event_type(&self, source: &TypeSource) -> Option<Cow<'a, str>> {
        source.sources.iter().find_map(|source| usable_type(self.type_at(source)))
    }

    fn type_at(&self, source: &ValueSource) -> Option<Cow<'a, str>> {
        match source {
            ValueSource::Json(path) => {
                // A missing type does not make the body invalid.
                let [field] = json_body::read(self.body, [path]).ok()?;
                field.text()
            }
            ValueSource::Header(name) => self.head.text_header(name).map(Cow::Borrowed),
            ValueSource::Closure(name) => name(self.head, self.body).map(Cow::Owned),
            ValueSource::BodyClosure(name) => name(self.body).map(Cow::Owned),
            ValueSource::BodyDigest | ValueSource::SignedId | ValueSource::NoId => None,
        }
    }

    /// Returns the first id of the chain. An unusable id is refused, and not skipped.
    fn id(&self, source: &IdSource, event_type: Option<&str>) -> Result<Option<Cow<'a, str>>, Rejection> {
        let mut refusal = ABSENT;
        for candidate in &source.candidates {
            match self.id_at(candidate, event_type)? {
                FoundId::NoId => return Ok(None),
                FoundId::Missing(why) => refusal = why,
                FoundId::Id(id) => {
                    check_id(&id)?;
                    return candidate.complete(id, event_type).map(Some);
                }
            }
        }
        Err(refusal)
    }

    fn id_at(&self, candidate: &IdCandidate, event_type: Option<&str>) -> Result<FoundId<'a>, Rejection> {
        let id = match &candidate.source {
            ValueSource::Json(path) => return self.json_id(path),
            ValueSource::Header(name) => match self.head.text_header(name) {
                None if self.head.headers().contains_key(name) => {
                    return Err(invalid("its header occurs more than once, or is not visible ascii"));
                }
                id => id.map(Cow::Borrowed),
            },
            ValueSource::Closure(name) => name(self.head, self.body).map(Cow::Owned),
            ValueSource::BodyClosure(name) => name(self.body).map(Cow::Owned),
            ValueSource::BodyDigest if candidate.typed => {
                Some(Cow::Owned(hex::encode(typed_digest(event_type, self.body))))
            }
            ValueSource::BodyDigest => Some(Cow::Owned(hex::encode(Sha256::digest(self.body)))),
            ValueSource::SignedId => self.signed_id.map(Cow::Borrowed),
            ValueSource::NoId => return Ok(FoundId::NoId),
        };
        Ok(id.map_or(FoundId::Missing(ABSENT), FoundId::Id))
    }

    fn json_id(&self, path: &JsonPath) -> Result<FoundId<'a>, Rejection> {
        match json_body::read(self.body, [path]) {
            Ok([Field::Text(id)]) => Ok(FoundId::Id(id)),
            Ok([Field::Absent]) => Ok(FoundId::Missing(ABSENT)),
            Ok([Field::Other(_)]) => Err(NOT_TEXT),
            // The id is present, but more than once.
            Err(error @ JsonBodyError::RepeatedKey) => Err(unparseable(error)),
            Err(error) => Ok(FoundId::Missing(unparseable(error))),
        }
    }
}

impl IdCandidate {
    /// Combines the id with the type, if configured. The type's length comes first, so that no two pairs give the same
    /// id.
    fn complete<'a>(&self, id: Cow<'a, str>, event_type: Option<&str>) -> Result<Cow<'a, str>, Rejection> {
        if !self.typed || matches!(self.source, ValueSource::BodyDigest) {
            return Ok(id);
        }
        let event_type = event_type.unwrap_or_default();
        let id = format!("{}:{event_type}:{id}", event_type.len());
        if id.len() > LONGEST_PART {
            return Err(invalid("it is longer than 255 bytes together with the type"));
        }
        Ok(Cow::Owned(id))
    }
}

/// Filters out a type that cannot be shown. Types are for people and for dispatch, so an unusable one is no reason to
/// refuse the delivery.
#[inline(always)]
fn usable_type(event_type: Option<Cow<'_, str>>) -> Option<Cow<'_, str>> {
    match event_type {
        Some(text) if is_name(&text) => Some(text),
        _ => None,
    }
}

#[inline(always)]
fn check_id(id: &str) -> Result<(), Rejection> {
    let usual = (1..=LONGEST_PART).contains(&id.len()) && is_plain(id) && !id.starts_with(RESERVED);
    if usual { Ok(()) } else { check_unusual_id(id) }
}

#[cold]
fn check_unusual_id(id: &str) -> Result<(), Rejection> {
    if id.len() > LONGEST_PART {
        return Err(invalid("it is longer than 255 bytes"));
    }
    if id.starts_with(RESERVED) {
        return Err(invalid("it begins with the prefix of this crate's own keys"));
    }
    if id.trim().is_empty() {
        return Err(invalid("it is empty or blank"));
    }
    if id.chars().any(char::is_control) {
        return Err(invalid("it contains control characters"));
    }
    Ok(())
}

const fn invalid(detail: &'static str) -> Rejection {
    Rejection::with_detail(RejectionKind::InvalidId, detail)
}

fn unparseable(error: JsonBodyError) -> Rejection {
    Rejection::with_detail(RejectionKind::MalformedBody, error.explanation())
}

/// The SHA-256 of a type and a body. The type's length comes first, so that no byte of the type can be taken for one of
/// the body. An absent type counts as the empty one.
pub(crate) fn typed_digest(event_type: Option<&str>, body: &[u8]) -> Output<Sha256> {
    let event_type = event_type.unwrap_or_default();
    let length = (event_type.len() as u64).to_be_bytes();
    Sha256::new().chain_update(length).chain_update(event_type).chain_update(body).finalize()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use http::Request;

    use super::*;

    fn json(path: &str) -> IdSource {
        IdSource::json(path).expect(path)
    }

    fn header(name: &str) -> IdSource {
        IdSource::unsigned_header(name).expect(name)
    }

    fn topic() -> TypeSource {
        TypeSource::header("topic").expect("a name")
    }

    /// Reads the id and the type from a body and headers.
    fn identity(
        (id, event_type): (&IdSource, &TypeSource),
        headers: &[(&'static str, &str)],
        body: &str,
        signed_id: Option<&str>,
    ) -> Result<(Option<String>, Option<String>), RejectionKind> {
        let mut request = Request::new(());
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().expect("a value"));
        }
        let (parts, ()) = request.into_parts();
        let head = Head::new(&parts, SystemTime::UNIX_EPOCH);
        identify(id, event_type, &head, body.as_bytes(), signed_id)
            .map(|Identity { id, event_type }| (id.map(Cow::into_owned), event_type.map(Cow::into_owned)))
            .map_err(|rejection| rejection.kind())
    }

    fn id(source: &IdSource, headers: &[(&'static str, &str)], body: &str) -> Result<Option<String>, RejectionKind> {
        identity((source, &topic()), headers, body, None).map(|(id, _)| id)
    }

    fn found(id: &str) -> Result<Option<String>, RejectionKind> {
        Ok(Some(id.to_owned()))
    }

    #[test]
    fn places_are_tried_in_order() {
        let source = json("event_id").or(json("data.id")).or(header("x-id")).or(IdSource::unsigned_by(|_, _| None));
        assert_eq!(id(&source, &[("x-id", "h")], r#"{"event_id":"e","data":{"id":"d"}}"#), found("e"));
        assert_eq!(id(&source, &[("x-id", "h")], r#"{"data":{"id":"d"}}"#), found("d"));
        assert_eq!(id(&source, &[("x-id", "h")], r#"{"data":{}}"#), found("h"));
        for no_json in ["", "a=1&b=2", "{", "\u{feff}{}"] {
            assert_eq!(id(&source, &[("x-id", "h")], no_json), found("h"), "{no_json:?}");
        }
        assert_eq!(id(&source, &[], "{}"), Err(RejectionKind::InvalidId), "nowhere");
        assert_eq!(
            id(&header("x-id").or(json("id")), &[], "{"),
            Err(RejectionKind::MalformedBody),
            "the last one says why"
        );
    }

    #[test]
    fn unusable_ids_are_refused_and_not_passed_over() {
        let source = json("id").or(IdSource::none());
        let long = format!(r#"{{"id":"{}"}}"#, "x".repeat(256));
        for body in [r#"{"id":1}"#, r#"{"id":null}"#, r#"{"id":""}"#, r#"{"id":" "}"#, r#"{"id":"\n"}"#, &long] {
            assert_eq!(id(&source, &[], body), Err(RejectionKind::InvalidId), "{body}");
        }
        assert_eq!(
            id(&source, &[], r#"{"id":"a","id":"b"}"#),
            Err(RejectionKind::MalformedBody),
            "two ids are not none"
        );
        let source = header("x-id").or(IdSource::none());
        for headers in [&[("x-id", "")][..], &[("x-id", "a"), ("x-id", "a")], &[("x-id", "é")], &[("x-id", "a\tb")]] {
            assert_eq!(id(&source, headers, ""), Err(RejectionKind::InvalidId), "{headers:?}");
        }
        assert_eq!(id(&source, &[], ""), Ok(None));
    }

    #[test]
    fn ids_that_begin_as_the_crates_own_keys_are_refused() {
        assert_eq!(
            id(&header("x-id"), &[("x-id", "tower-webhook:replay-guard:00")], ""),
            Err(RejectionKind::InvalidId)
        );
        assert_eq!(id(&header("x-id"), &[("x-id", "tower-webhook")], ""), found("tower-webhook"));
    }

    #[test]
    fn nothing_follows_none_and_the_digest() {
        assert_eq!(id(&IdSource::none().or(json("id")), &[], r#"{"id":"a"}"#), Ok(None));
        let digest = hex::encode(Sha256::digest("x"));
        assert_eq!(id(&IdSource::body_digest().or(IdSource::none()), &[], "x"), found(&digest));
    }

    #[test]
    fn signed_id_is_the_schemes() {
        let sources = (&IdSource::signed().or(json("id")), &topic());
        let read = |signed_id| identity(sources, &[], r#"{"id":"a"}"#, signed_id).map(|(id, _)| id);
        assert_eq!(read(Some("s")), found("s"));
        assert_eq!(read(None), found("a"));
        assert_eq!(read(Some("\n")), Err(RejectionKind::InvalidId));
        assert_eq!(id(&IdSource::signed(), &[], "{}"), Err(RejectionKind::InvalidId));
    }

    #[test]
    fn type_is_a_part_of_the_id_where_asked_for() {
        let source = json("a").or(header("x-id")).with_type();
        assert_eq!(id(&source, &[("topic", "orders/paid")], r#"{"a":"1"}"#), found("11:orders/paid:1"));
        assert_eq!(id(&source, &[("topic", "orders/paid"), ("x-id", "2")], ""), found("11:orders/paid:2"));
        assert_eq!(id(&source, &[], r#"{"a":"1"}"#), found("0::1"), "an absent type is the empty one");
        assert_eq!(
            id(&source, &[("topic", "t")], r#"{"a":" "}"#),
            Err(RejectionKind::InvalidId),
            "blank is still blank"
        );
        assert_eq!(id(&source.or(IdSource::none()), &[("topic", "t")], "{}"), Ok(None));
        let after = json("a").with_type().or(header("x-id"));
        assert_eq!(id(&after, &[("topic", "t"), ("x-id", "2")], "{}"), found("2"), "only of the chain so far");
    }

    #[test]
    fn no_two_typed_ids_are_the_same() {
        let source = header("x-id").with_type();
        let pairs = [("", "a:b"), ("a", "b"), ("a:b", "c"), ("a", "b:c"), ("1:a", "b"), ("0::a", "b"), ("", "0::a")];
        let ids = pairs.map(|(kind, name)| id(&source, &[("topic", kind), ("x-id", name)], "").expect("an id"));
        assert_eq!(ids.iter().collect::<std::collections::HashSet<_>>().len(), pairs.len(), "{ids:?}");
    }

    #[test]
    fn typed_ids_have_at_most_255_bytes_in_all() {
        let source = header("x-id").with_type();
        let (kind, fits) = ("t".repeat(100), "i".repeat(150));
        assert!(id(&source, &[("topic", &kind), ("x-id", &fits)], "").is_ok());
        let longer = format!("{fits}i");
        assert_eq!(id(&source, &[("topic", &kind), ("x-id", &longer)], ""), Err(RejectionKind::InvalidId));
    }

    #[test]
    fn digests_differ_by_type_where_asked_for() {
        let (plain, typed) = (IdSource::body_digest(), IdSource::body_digest().with_type());
        assert_eq!(id(&plain, &[("topic", "a")], "x"), id(&plain, &[("topic", "b")], "x"));
        assert_eq!(id(&typed, &[("topic", "a")], "x"), found(&hex::encode(typed_digest(Some("a"), b"x"))));
        assert_ne!(id(&typed, &[("topic", "a")], "x"), id(&typed, &[("topic", "b")], "x"));
    }

    #[test]
    fn types_are_tried_in_order_and_never_refuse() {
        let types = TypeSource::key("kind").or(topic()).or(TypeSource::by(|_, _| Some("last".to_owned())));
        let read = |headers: &[(&'static str, &str)], body| {
            identity((&IdSource::body_digest(), &types), headers, body, None).map(|(_, event_type)| event_type)
        };
        assert_eq!(read(&[("topic", "h")], r#"{"kind":"j"}"#), found("j"));
        for body in ["{}", "no json", r#"{"kind":1}"#, r#"{"kind":""}"#, r#"{"kind":"\n"}"#] {
            assert_eq!(read(&[("topic", "h")], body), found("h"), "{body}");
            assert_eq!(read(&[], body), found("last"), "{body}");
        }
    }

    #[test]
    fn one_pass_and_several_read_the_same() {
        let (single, chained) = (json("id"), json("id").or(json("id")));
        let kind = TypeSource::default();
        for body in [r#"{"id":"a","type":"t"}"#, r#"{"id":"a"}"#, r#"{"id":1}"#, r#"{"type":"t"}"#, "{", "", "[]"] {
            let one = identity((&single, &kind), &[], body, None);
            assert_eq!(one, identity((&chained, &kind), &[], body, None), "{body:?}");
            assert_eq!(one, identity((&single, &kind.clone().or(topic())), &[], body, None), "{body:?}");
        }
    }

    #[test]
    fn no_byte_of_the_type_passes_for_one_of_the_body() {
        assert_ne!(typed_digest(Some("ab"), b"c"), typed_digest(Some("a"), b"bc"));
        assert_ne!(typed_digest(Some("a"), b""), typed_digest(None, b"a"));
        assert_ne!(typed_digest(None, b""), Sha256::digest(b""));
        assert_eq!(typed_digest(None, b"x"), typed_digest(Some(""), b"x"));
    }
}
