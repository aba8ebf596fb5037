use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;

pub(super) fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).expect(text)
}

pub(super) fn text(value: &str) -> Field<'_> {
    Field::Text(Cow::Borrowed(value))
}

fn read_id(body: &[u8]) -> Result<Field<'_>, JsonBodyError> {
    read(body, [&path("id")]).map(|[id]| id)
}

/// Whether a body is valid JSON if no field of it is read.
pub(super) fn is_json(body: &[u8]) -> bool {
    let skipped = [b"[", body, b"]"].concat();
    read(&skipped, []).is_ok()
}

fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

#[test]
fn fields_are_found_wherever_they_stand() {
    let body = br#" { "type" : "paid", "data": {"id": "no", "x": [{"id": 1}]}, "event": {"id": "evt_1"}, "z": 0 } "#;
    let fields = read(body, [&path("event.id"), &path("type"), &path("data.object.id"), &path("id")]);
    assert_eq!(fields, Ok([text("evt_1"), text("paid"), Field::Absent, Field::Absent]));
}

#[test]
fn paths_may_share_keys_and_contain_one_another() {
    let paths = [&path("event"), &path("event.id"), &path("event.type"), &path("event.id")];
    let body = br#"{"event": {"type": "t", "id": "i"}}"#;
    assert_eq!(read(body, paths), Ok([Field::Other(r#"{"type": "t", "id": "i"}"#), text("i"), text("t"), text("i")]));
    assert_eq!(read(br#"{"event": "e"}"#, paths), Ok([text("e"), Field::Absent, Field::Absent, Field::Absent]));
    let ninth = br#"{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":"deep"}}}}}}}}"#;
    assert_eq!(read(ninth, [&path("a.a.a.a.a.a.a.a")]), Ok([text("deep")]));
}

#[test]
fn only_strings_are_text() {
    for other in ["1", "null", "true", "false", "[]", "[\"id\"]", "{}", "{\"id\": \"x\"}", "-1.5e3"] {
        assert_eq!(read_id(format!("{{\"id\": {other}}}").as_bytes()), Ok(Field::Other(other)), "{other}");
    }
    assert_eq!(read_id(br#"{"id": ""}"#), Ok(text("")));
}

#[test]
fn raw_texts_are_what_stands_there_and_nothing_around_it() {
    let body =
        "\n{ \"id\" :\t[ 1 , { \"é\" : \"🦀 ]\" } ]\r\n, \"at\":  1700000000123 ,\"o\":{ \"in\" : { } , \"x\":0 } }";
    let fields = read(body.as_bytes(), [&path("id"), &path("at"), &path("o"), &path("o.in")]);
    let expected = ["[ 1 , { \"é\" : \"🦀 ]\" } ]", "1700000000123", "{ \"in\" : { } , \"x\":0 }", "{ }"];
    assert_eq!(fields, Ok(expected.map(Field::Other)));
}

#[test]
fn elements_are_the_raw_texts_in_an_array() {
    for (array, expected) in [
        ("[]", &[][..]),
        (" [\n] ", &[]),
        ("[1]", &["1"]),
        (" [ 1 , \"a,]\" , null,[2, 3] ,{\"b\": [ ]} ]\n", &["1", "\"a,]\"", "null", "[2, 3]", "{\"b\": [ ]}"]),
        ("[\"é\",\"\\u00e9\"]", &["\"é\"", "\"\\u00e9\""]),
    ] {
        let found: Vec<_> = elements(array).unwrap_or_else(|| panic!("{array}")).collect();
        assert_eq!(found, expected, "{array}");
    }
}

#[test]
fn what_is_no_array_has_no_elements() {
    let too_deep = nested(128);
    for other in
        ["", " ", "1", "null", "\"[]\"", "{}", "{\"a\": []}", "[", "[1", "[1,]", "[1 2]", "[] 1", "[]]", &too_deep]
    {
        assert!(elements(other).is_none(), "{other}");
    }
}

#[test]
fn items_of_a_field_are_read_like_bodies() {
    let body = br#"{"items": [{"item": {"id": "a", "n": 1}}, {"item": {"id": "b"}}, 3]}"#;
    let Ok([Field::Other(items)]) = read(body, [&path("items")]) else { panic!("an array") };
    let ids = elements(items).expect("an array").map(|item| read(item.as_bytes(), [&path("item.id")]));
    assert_eq!(ids.collect::<Vec<_>>(), [Ok([text("a")]), Ok([text("b")]), Ok([Field::Absent])]);
}

#[test]
fn a_top_level_that_is_no_object_has_no_fields() {
    for body in ["[]", "[{\"id\": \"x\"}]", "\"id\"", "1", "-0.1E+2", "null", "true", "false", "{}", " {\t\r\n} "] {
        assert_eq!(read_id(body.as_bytes()), Ok(Field::Absent), "{body}");
    }
}

#[test]
fn nothing_but_white_space_is_empty() {
    for body in ["", " ", "\n\t\r  ", "                  "] {
        assert_eq!(read_id(body.as_bytes()), Err(JsonBodyError::Empty), "{body:?}");
    }
}

#[test]
fn only_utf8_is_read() {
    for body in [&b"\xff"[..], b"{\"id\": \"\xc3\"}", b"{} \x80", b"[\"\xed\xa0\x80\"]", b"[\"\xc0\xaf\"]"] {
        assert_eq!(read_id(body), Err(JsonBodyError::NotUtf8), "{body:?}");
    }
}

#[test]
fn syntax_errors_name_the_byte() {
    for (body, offset) in [
        ("\u{feff}{}", 0),
        ("\0", 0),
        ("{} x", 3),
        ("{}{}", 2),
        ("{}\0", 2),
        ("1 2", 2),
        ("\u{a0}1", 0),
        ("{", 1),
        ("[1", 2),
        ("[1,]", 3),
        ("[,1]", 1),
        ("[1 2]", 3),
        ("[1}", 2),
        ("{\"a\":1]", 6),
        ("{\"a\":1,}", 7),
        ("{\"a\" 1}", 5),
        ("{\"a\"}", 4),
        ("{\"a\":}", 5),
        ("{a:1}", 1),
        ("{'a':1}", 1),
        ("{1:1}", 1),
        ("]", 0),
        ("// c\n1", 0),
        ("01", 1),
        ("-", 1),
        ("+1", 0),
        (".5", 0),
        ("1.", 2),
        ("1.e1", 2),
        ("1e", 2),
        ("1e+", 3),
        ("0x1", 1),
        ("-01", 2),
        ("NaN", 0),
        ("Infinity", 0),
        ("True", 0),
        ("tru", 0),
        ("truex", 4),
        ("nul", 0),
        ("\"", 1),
        ("\"abc", 4),
        ("\"a\nb\"", 2),
        ("\"1234567\tb\"", 8),
        ("\"\\x\"", 2),
        ("\"\\", 2),
        ("\"\\u12", 5),
        ("\"\\u12g4\"", 5),
        ("\"\\u+123\"", 3),
    ] {
        assert_eq!(read_id(body.as_bytes()), Err(JsonBodyError::Syntax { offset }), "{body:?}");
        assert!(serde_json::from_str::<IgnoredAny>(body).is_err(), "{body:?}");
    }
}

#[test]
fn values_nobody_reads_need_only_be_grammatical() {
    for value in ["1e400", "-0", "-0.0e-0", "123456789012345678901234567890", r#""\ud83e\udd80""#, "\"\x7f\""] {
        let body = format!("{{\"x\": {value}, \"y\": {{\"id\": [{value}]}}, \"id\": \"i\"}}");
        assert_eq!(read_id(body.as_bytes()), Ok(text("i")), "{body}");
    }
    assert_eq!(read_id(br#"{"x": {"a": 1, "a": 2}, "x": 0, "id": {"b": 0}}"#), Ok(Field::Other(r#"{"b": 0}"#)));
}

#[test]
fn wanted_strings_come_back_unescaped() {
    let body = br#"{"id": "\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83e\udd80 \u0000 plain"}"#;
    assert_eq!(read_id(body), Ok(text("\"\\/\u{8}\u{c}\n\r\tA\u{e9}\u{20ac}\u{1f980} \0 plain")));
    let borrowed = read_id("{\"id\": \"日本 🦀 evt_0123456789\"}".as_bytes());
    assert!(matches!(borrowed, Ok(Field::Text(Cow::Borrowed("日本 🦀 evt_0123456789")))));
}

#[test]
fn lone_surrogates_are_refused_everywhere() {
    for lone in [r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud800\n", r"\ud800x", r"\ud800\u0041", r"\udbff "] {
        let value = format!("{{\"id\": \"{lone}\"}}");
        assert_eq!(read_id(value.as_bytes()), Err(JsonBodyError::Syntax { offset: 8 }), "{lone}");
        let key = format!("{{\"{lone}\": 1}}");
        assert_eq!(read_id(key.as_bytes()), Err(JsonBodyError::Syntax { offset: 2 }), "{lone}");
        let skipped = format!("{{\"x\": [\"{lone}\"]}}");
        assert_eq!(read_id(skipped.as_bytes()), Err(JsonBodyError::Syntax { offset: 8 }), "{lone}");
        let skipped_key = format!("{{\"x\": {{\"{lone}\": 1}}}}");
        assert_eq!(read_id(skipped_key.as_bytes()), Err(JsonBodyError::Syntax { offset: 8 }), "{lone}");
    }
}

#[test]
fn a_key_on_a_path_may_occur_once_in_any_spelling() {
    for body in [
        r#"{"id": "a", "id": "a"}"#,
        r#"{"id": "a", "\u0069d": "b"}"#,
        r#"{"\u0069\u0064": 1, "x": 0, "id": null}"#,
        r#"{"id": {}, "id": "b"}"#,
    ] {
        assert_eq!(read_id(body.as_bytes()), Err(JsonBodyError::RepeatedKey), "{body}");
    }
    for body in [r#"{"event": {"id": "a"}, "event": 1}"#, r#"{"event": [], "event": {}}"#] {
        assert_eq!(read(body.as_bytes(), [&path("event.id")]), Err(JsonBodyError::RepeatedKey), "{body}");
    }
    assert_eq!(read_id(br#"{"\u0069d": "a", "ID": 1, "ID": 2, "id ": 3, "x": {"id": 1, "id": 2}}"#), Ok(text("a")));
}

#[test]
fn nesting_stops_where_serde_json_stops() {
    for depth in [1, 63, 64, 65, 126, 127, 128, 129, 200, 100_000] {
        let objects = "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        for body in [nested(depth), objects] {
            let expected = serde_json::from_str::<Value>(&body).map(|_| Field::Absent);
            assert_eq!(read_id(body.as_bytes()), expected.map_err(|_| JsonBodyError::TooDeep), "{depth}");
        }
    }
    let below_a_path = |depth| format!("{{\"event\": {{\"id\": {}}}}}", nested(depth));
    assert_eq!(read(below_a_path(125).as_bytes(), [&path("event.id")]), Ok([Field::Other(&nested(125))]));
    assert_eq!(read(below_a_path(126).as_bytes(), [&path("event.id")]), Err(JsonBodyError::TooDeep));
}

#[test]
fn every_byte_counts_at_every_place_in_a_word() {
    for before in 0..20 {
        for byte in 0..=127 {
            for after in [0, 1, 9] {
                let body =
                    ["\"".into(), "é".repeat(before), char::from(byte).into(), "~".repeat(after), "\"".into()].concat();
                let accepted = serde_json::from_str::<IgnoredAny>(&body).is_ok();
                assert_eq!(read_id(body.as_bytes()).is_ok(), accepted, "{body:?}");
            }
        }
    }
}

#[test]
fn errors_read_as_one_lower_case_sentence() {
    for error in [
        JsonBodyError::Empty,
        JsonBodyError::NotUtf8,
        JsonBodyError::Syntax { offset: 7 },
        JsonBodyError::TooDeep,
        JsonBodyError::RepeatedKey,
    ] {
        let message = error.to_string();
        assert_eq!(message, message.to_lowercase());
    }
    assert_eq!(JsonBodyError::Syntax { offset: 7 }.to_string(), "the body is not valid json at byte 7");
}

#[test]
fn paths_come_back_as_written() {
    for text in ["id", "event.id", "a.b.c.d.e.f.g.h", "日本.🦀", " ", "data/0"] {
        assert_eq!(JsonPath::parse(text).expect(text).as_str(), text);
    }
    assert_eq!(JsonPath::parse("id"), Some(JsonPath::key("id")));
}

#[test]
fn empty_and_overlong_paths_are_refused() {
    for text in ["", ".", ".id", "id.", "event..id", "a.b.c.d.e.f.g.h.i"] {
        assert_eq!(JsonPath::parse(text), None, "{text:?}");
    }
}

#[test]
fn each_level_names_its_own_key() {
    let path = JsonPath::parse("event.id").expect("a sound path");
    assert!(path.names(0, "event") && path.names(1, "id"));
    assert!(!path.names(0, "id") && !path.names(1, "i") && !path.names(2, "id") && !path.names(2, ""));
    assert!(!path.ends_at(0) && path.ends_at(1) && !path.ends_at(2));
}
