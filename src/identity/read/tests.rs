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

/// The id and the type that are read from a body and headers.
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
    assert_eq!(id(&source, &[], r#"{"id":"a","id":"b"}"#), Err(RejectionKind::MalformedBody), "two ids are not none");
    let source = header("x-id").or(IdSource::none());
    for headers in [&[("x-id", "")][..], &[("x-id", "a"), ("x-id", "a")], &[("x-id", "é")], &[("x-id", "a\tb")]] {
        assert_eq!(id(&source, headers, ""), Err(RejectionKind::InvalidId), "{headers:?}");
    }
    assert_eq!(id(&source, &[], ""), Ok(None));
}

#[test]
fn ids_that_begin_as_the_crates_own_keys_are_refused() {
    assert_eq!(id(&header("x-id"), &[("x-id", "tower-webhook:replay-guard:00")], ""), Err(RejectionKind::InvalidId));
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
    assert_eq!(id(&source, &[("topic", "t")], r#"{"a":" "}"#), Err(RejectionKind::InvalidId), "blank is still blank");
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
