//! Property tests: random bodies are read as `serde_json` reads them.

use proptest::prelude::*;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::tests::{is_json, path, text};
use super::*;

/// The result of `serde_json` with repeated keys kept, on which looking fields up is simple.
enum Tree {
    Text(String),
    Object(Vec<(String, Tree)>),
    Other,
}

impl Tree {
    fn at(&self, keys: &[&str]) -> Result<Field<'_>, JsonBodyError> {
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
            _ => Err(JsonBodyError::RepeatedKey),
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

/// Compares the reader with `serde_json`. They differ in one way only: `serde_json` refuses numbers that it cannot
/// hold.
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
            let repeated = found.contains(&Err(JsonBodyError::RepeatedKey));
            let expected = if repeated { Err(JsonBodyError::RepeatedKey) } else { Ok(found.map(|f| f.expect("once"))) };
            let fields = fields.map(|fields| array::from_fn(|i| agreeing(body, keys[i], &fields[i])));
            assert_eq!(fields, expected, "{:?}", String::from_utf8_lossy(body));
        }
        Err(error) if error.to_string().starts_with("number out of range") => {}
        Err(_) => assert!(fields.is_err(), "{:?}", String::from_utf8_lossy(body)),
    }
}

/// Compares the raw text of a field with the value that `serde_json` has there, and returns the field without it.
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

/// Generates JSON as text, so that spellings, spaces and repeated keys vary too.
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
