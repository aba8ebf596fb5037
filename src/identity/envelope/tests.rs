use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::*;

fn path(text: &str) -> JsonPath {
    JsonPath::parse(text).expect(text)
}

fn text(value: &str) -> Field<'_> {
    Field::Text(Cow::Borrowed(value))
}

fn read_id(body: &[u8]) -> Result<Field<'_>, EnvelopeError> {
    read(body, [&path("id")]).map(|[id]| id)
}

/// Whether a body is JSON when nobody reads anything of it.
fn is_json(body: &[u8]) -> bool {
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
        assert_eq!(read_id(body.as_bytes()), Err(EnvelopeError::Empty), "{body:?}");
    }
}

#[test]
fn only_utf8_is_read() {
    for body in [&b"\xff"[..], b"{\"id\": \"\xc3\"}", b"{} \x80", b"[\"\xed\xa0\x80\"]", b"[\"\xc0\xaf\"]"] {
        assert_eq!(read_id(body), Err(EnvelopeError::NotUtf8), "{body:?}");
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
        assert_eq!(read_id(body.as_bytes()), Err(EnvelopeError::Syntax { offset }), "{body:?}");
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
        assert_eq!(read_id(value.as_bytes()), Err(EnvelopeError::Syntax { offset: 8 }), "{lone}");
        let key = format!("{{\"{lone}\": 1}}");
        assert_eq!(read_id(key.as_bytes()), Err(EnvelopeError::Syntax { offset: 2 }), "{lone}");
        let skipped = format!("{{\"x\": [\"{lone}\"]}}");
        assert_eq!(read_id(skipped.as_bytes()), Err(EnvelopeError::Syntax { offset: 8 }), "{lone}");
        let skipped_key = format!("{{\"x\": {{\"{lone}\": 1}}}}");
        assert_eq!(read_id(skipped_key.as_bytes()), Err(EnvelopeError::Syntax { offset: 8 }), "{lone}");
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
        assert_eq!(read_id(body.as_bytes()), Err(EnvelopeError::RepeatedKey), "{body}");
    }
    for body in [r#"{"event": {"id": "a"}, "event": 1}"#, r#"{"event": [], "event": {}}"#] {
        assert_eq!(read(body.as_bytes(), [&path("event.id")]), Err(EnvelopeError::RepeatedKey), "{body}");
    }
    assert_eq!(read_id(br#"{"\u0069d": "a", "ID": 1, "ID": 2, "id ": 3, "x": {"id": 1, "id": 2}}"#), Ok(text("a")));
}

#[test]
fn nesting_stops_where_serde_json_stops() {
    for depth in [1, 63, 64, 65, 126, 127, 128, 129, 200, 100_000] {
        let objects = "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
        for body in [nested(depth), objects] {
            let expected = serde_json::from_str::<Value>(&body).map(|_| Field::Absent);
            assert_eq!(read_id(body.as_bytes()), expected.map_err(|_| EnvelopeError::TooDeep), "{depth}");
        }
    }
    let below_a_path = |depth| format!("{{\"event\": {{\"id\": {}}}}}", nested(depth));
    assert_eq!(read(below_a_path(125).as_bytes(), [&path("event.id")]), Ok([Field::Other(&nested(125))]));
    assert_eq!(read(below_a_path(126).as_bytes(), [&path("event.id")]), Err(EnvelopeError::TooDeep));
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
        EnvelopeError::Empty,
        EnvelopeError::NotUtf8,
        EnvelopeError::Syntax { offset: 7 },
        EnvelopeError::TooDeep,
        EnvelopeError::RepeatedKey,
    ] {
        let message = error.to_string();
        assert_eq!(message, message.to_lowercase());
    }
    assert_eq!(EnvelopeError::Syntax { offset: 7 }.to_string(), "the body is not valid json at byte 7");
}

/// What `serde_json` reads, with every key in its place: the plain way to look fields up.
enum Tree {
    Text(String),
    Object(Vec<(String, Tree)>),
    Other,
}

impl Tree {
    fn at(&self, keys: &[&str]) -> Result<Field<'_>, EnvelopeError> {
        let (Some((first, rest)), Self::Object(members)) = (keys.split_first(), self) else {
            return Ok(match self {
                _ if !keys.is_empty() => Field::Absent,
                Self::Text(found) => text(found),
                _ => Field::Other(""),
            });
        };
        let mut found = members.iter().filter(|(key, _)| key == first);
        match (found.next(), found.next()) {
            (Some((_, value)), None) => value.at(rest),
            (None, _) => Ok(Field::Absent),
            _ => Err(EnvelopeError::RepeatedKey),
        }
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("json")
    }

    fn visit_str<E>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Text(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Tree, E> {
        Ok(Tree::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Tree, A::Error> {
        while items.next_element::<Tree>()?.is_some() {}
        Ok(Tree::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Tree, A::Error> {
        let mut all = Vec::new();
        while let Some(member) = members.next_entry()? {
            all.push(member);
        }
        Ok(Tree::Object(all))
    }
}

/// Holds the reader against `serde_json`, which differs in one way only: it refuses numbers that it cannot hold.
fn agrees_with_serde_json(body: &[u8]) {
    let skipped = [b"[", body, b"]"].concat();
    match serde_json::from_slice::<Tree>(&skipped) {
        Err(error) if error.to_string().starts_with("number out of range") => {}
        judged => assert_eq!(is_json(body), judged.is_ok(), "{:?}", String::from_utf8_lossy(body)),
    }

    let keys: [&[&str]; 4] = [&["a"], &["a", "b"], &["id"], &["a", "b", "id"]];
    let paths = keys.map(|keys| path(&keys.join(".")));
    let fields = read(body, paths.each_ref());
    match serde_json::from_slice::<Tree>(body) {
        Ok(tree) => {
            let found = keys.map(|keys| tree.at(keys));
            let repeated = found.contains(&Err(EnvelopeError::RepeatedKey));
            let expected = if repeated { Err(EnvelopeError::RepeatedKey) } else { Ok(found.map(|f| f.expect("once"))) };
            let fields = fields.map(|fields| array::from_fn(|i| agreeing(body, keys[i], &fields[i])));
            assert_eq!(fields, expected, "{:?}", String::from_utf8_lossy(body));
        }
        Err(error) if error.to_string().starts_with("number out of range") => {}
        Err(_) => assert!(fields.is_err(), "{:?}", String::from_utf8_lossy(body)),
    }
}

/// The field, with a raw text that was held against what `serde_json` has there left out.
fn agreeing<'a>(body: &[u8], keys: &[&str], field: &Field<'a>) -> Field<'a> {
    let Field::Other(raw) = field else { return field.clone() };
    let tree = serde_json::from_slice::<Value>(body).expect("json");
    assert_eq!(raw.trim(), *raw);
    assert_eq!(
        serde_json::from_str::<Value>(raw).ok().as_ref(),
        tree.pointer(&format!("/{}", keys.join("/"))),
        "{raw}"
    );
    Field::Other("")
}

fn one_of(choices: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::sample::select(choices).prop_map(String::from)
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => one_of(&["a", "b", "id", "type", r"\u0061", r"\u0069d", r"\u0062", ""]),
        1 => string_content(),
    ]
}

fn string_content() -> impl Strategy<Value = String> {
    let plain = any::<String>().prop_map(|raw| {
        let quoted = Value::from(raw).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    });
    let escapes = &[r"\n", r"\/", r"\u00e9", r"\ud83e\udd80", r"\ud800", r"\udc00", r"\\", r#"\""#, "evt_12345678"];
    let pieces = prop::collection::vec(one_of(escapes), 0..6);
    prop_oneof![plain, pieces.prop_map(|pieces| pieces.concat())]
}

fn space() -> impl Strategy<Value = String> {
    one_of(&["", "", "", " ", "  ", "\n          ", "\t\r\n"])
}

/// JSON as text, so that spellings, spaces and repeated keys vary too.
fn json() -> impl Strategy<Value = String> {
    let numbers = &["0", "-0", "12", "1.5", "-1e3", "1E+400", "123456789012345678901"];
    let leaf = prop_oneof![
        string_content().prop_map(|content| format!("\"{content}\"")),
        one_of(numbers),
        one_of(&["true", "false", "null", "{}", "[]"]),
    ];
    leaf.prop_recursive(5, 40, 5, |value| {
        let member =
            (key(), space(), value.clone(), space()).prop_map(|(k, s, v, t)| format!("{t}\"{k}\"{s}:{t}{v}{s}"));
        let item = (space(), value).prop_map(|(s, v)| format!("{s}{v}"));
        prop_oneof![
            3 => prop::collection::vec(member, 0..5).prop_map(|members| format!("{{{}}}", members.join(","))),
            1 => prop::collection::vec(item, 0..5).prop_map(|items| format!("[{}]", items.join(","))),
        ]
    })
}

/// Replaces, inserts or removes a byte.
fn mutated(body: &str, changes: &[(prop::sample::Index, u8, u8)]) -> Vec<u8> {
    let mut bytes = body.as_bytes().to_vec();
    for (place, kind, byte) in changes {
        let at = place.index(bytes.len() + 1);
        match kind % 3 {
            0 => bytes.insert(at, *byte),
            1 if at < bytes.len() => bytes[at] = *byte,
            _ if at < bytes.len() => drop(bytes.remove(at)),
            _ => {}
        }
    }
    bytes
}

fn telling_byte() -> impl Strategy<Value = u8> {
    prop_oneof![prop::sample::select(&b"{}[]\",:\\u0e-+. \n\x1ftfn\0"[..]), any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn any_bytes_are_judged_as_serde_json_judges_them(body in prop::collection::vec(any::<u8>(), 0..64)) {
        agrees_with_serde_json(&body);
    }

    #[test]
    fn any_json_like_text_is_judged_as_serde_json_judges_it(body in r#"[\[\]{}",:\\\-+.0-9eEabdfilnrstu \n\t]{0,40}"#) {
        agrees_with_serde_json(body.as_bytes());
    }

    #[test]
    fn any_json_is_read_as_serde_json_reads_it(body in json()) {
        agrees_with_serde_json(body.as_bytes());
    }

    #[test]
    fn mutated_json_is_judged_as_serde_json_judges_it(
        body in json(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), telling_byte()), 1..4),
    ) {
        agrees_with_serde_json(&mutated(&body, &changes));
    }
}
