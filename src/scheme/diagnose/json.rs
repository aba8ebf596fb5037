//! Prints JSON in another form: other white space, other escapes, or its keys in order. Numbers stay as they are
//! written, and so does the order of the keys unless it is asked for: a signature covers every byte.

use super::json_form::{JsonForm, JsonLayout};
use crate::identity::json_body;

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const PUNCTUATION: [char; 6] = ['{', '}', '[', ']', ',', ':'];

/// An object with fewer keys may be in alphabetical order by chance.
const MANY_KEYS: usize = 6;

/// A JSON text as a tree of its tokens.
pub(super) enum Json<'a> {
    /// A string with its quotes, or another scalar.
    Scalar(&'a str),
    Array(Vec<Json<'a>>),
    Object(Vec<(&'a str, Json<'a>)>),
}

impl<'a> Json<'a> {
    /// `None` if the bytes are not JSON, or if it nests deeper than 127 levels.
    pub(super) fn parse(body: &'a [u8]) -> Option<Self> {
        json_body::read(body, []).ok()?;
        Self::read(&mut Tokens { rest: std::str::from_utf8(body).ok()? })
    }

    fn read(tokens: &mut Tokens<'a>) -> Option<Self> {
        let token = tokens.next()?;
        let mut array = Vec::new();
        let mut object = Vec::new();
        match token {
            "[" => loop {
                match tokens.peek()? {
                    "]" => return tokens.next().map(|_| Self::Array(array)),
                    "," => drop(tokens.next()),
                    _ => array.push(Self::read(tokens)?),
                }
            },
            "{" => loop {
                match tokens.next()? {
                    "}" => return Some(Self::Object(object)),
                    "," => {}
                    key => {
                        tokens.next().filter(|colon| *colon == ":")?;
                        object.push((key, Self::read(tokens)?));
                    }
                }
            },
            scalar => Some(Self::Scalar(scalar)),
        }
    }

    pub(super) fn print(&self, form: &JsonForm) -> String {
        let mut out = String::new();
        self.write(&mut out, form, 0);
        out
    }

    fn write(&self, out: &mut String, form: &JsonForm, depth: usize) {
        match self {
            Self::Scalar(token) => form.push_token(out, token),
            Self::Array(items) => form.push_items(out, ["[", "]"], depth, items, |out, item| {
                item.write(out, form, depth + 1);
            }),
            Self::Object(members) => {
                let mut members: Vec<&(&str, Self)> = members.iter().collect();
                if form.sorted {
                    members.sort_by_key(|(key, _)| *key);
                }
                form.push_items(out, ["{", "}"], depth, members, |out, (key, value)| {
                    form.push_token(out, key);
                    out.push_str(if form.layout == JsonLayout::Compact { ":" } else { ": " });
                    value.write(out, form, depth + 1);
                });
            }
        }
    }

    /// Whether the keys of every object are in alphabetical order, and one object has many.
    pub(super) fn looks_sorted(&self) -> bool {
        self.is_sorted() && self.most_keys() >= MANY_KEYS
    }

    fn is_sorted(&self) -> bool {
        match self {
            Self::Scalar(_) => true,
            Self::Array(items) => items.iter().all(Self::is_sorted),
            Self::Object(members) => {
                members.is_sorted_by_key(|(key, _)| *key) && members.iter().all(|(_, value)| value.is_sorted())
            }
        }
    }

    fn most_keys(&self) -> usize {
        match self {
            Self::Scalar(_) => 0,
            Self::Array(items) => items.iter().map(Self::most_keys).max().unwrap_or(0),
            Self::Object(members) => {
                members.iter().map(|(_, value)| value.most_keys()).max().unwrap_or(0).max(members.len())
            }
        }
    }
}

impl JsonForm {
    fn push_items<T>(
        &self,
        out: &mut String,
        [opening, closing]: [&str; 2],
        depth: usize,
        items: impl IntoIterator<Item = T>,
        push: impl Fn(&mut String, T),
    ) {
        out.push_str(opening);
        let mut is_empty = true;
        for item in items {
            match (is_empty, self.layout) {
                (true, _) => {}
                (false, JsonLayout::Spaced) => out.push_str(", "),
                (false, _) => out.push(','),
            }
            is_empty = false;
            self.push_line(out, depth + 1);
            push(out, item);
        }
        // An empty object or array stays in one piece.
        if !is_empty {
            self.push_line(out, depth);
        }
        out.push_str(closing);
    }

    fn push_line(&self, out: &mut String, depth: usize) {
        if let JsonLayout::Indented { spaces } = self.layout {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', depth * usize::from(spaces)));
        }
    }

    fn push_token(&self, out: &mut String, token: &str) {
        let text = token.strip_prefix('"').and_then(|token| token.strip_suffix('"'));
        match (text, self.escapes) {
            (Some(text), Some(escapes)) => {
                out.push('"');
                escapes.write(out, text);
                out.push('"');
            }
            _ => out.push_str(token),
        }
    }
}

/// The tokens of a valid JSON text.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn peek(&mut self) -> Option<&'a str> {
        self.rest = self.rest.trim_start_matches(WHITE_SPACE);
        self.rest.get(..token_length(self.rest)?)
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek()?;
        self.rest = &self.rest[token.len()..];
        Some(token)
    }
}

fn token_length(json: &str) -> Option<usize> {
    match json.chars().next()? {
        '"' => {
            let mut escaped = false;
            let closing = json.bytes().skip(1).position(|byte| {
                let closes = byte == b'"' && !escaped;
                escaped = byte == b'\\' && !escaped;
                closes
            })?;
            Some(closing + 2)
        }
        first if PUNCTUATION.contains(&first) => Some(1),
        _ => {
            let ends = |character| PUNCTUATION.contains(&character) || WHITE_SPACE.contains(&character);
            Some(json.find(ends).unwrap_or(json.len()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_form::JsonEscapes;
    use super::*;

    fn printed(json: &str, form: &JsonForm) -> Option<String> {
        Json::parse(json.as_bytes()).map(|json| json.print(form))
    }

    #[test]
    fn layouts_change_white_space_only() {
        let json = r#" { "b" : [1.0 , {}, [ ]] , "a":"q\"{, }\\" } "#;
        let indented = "{\n  \"b\": [\n    1.0,\n    {},\n    []\n  ],\n  \"a\": \"q\\\"{, }\\\\\"\n}";
        for (layout, expected) in [
            (JsonLayout::Compact, r#"{"b":[1.0,{},[]],"a":"q\"{, }\\"}"#),
            (JsonLayout::Spaced, r#"{"b": [1.0, {}, []], "a": "q\"{, }\\"}"#),
            (JsonLayout::Indented { spaces: 2 }, indented),
        ] {
            assert_eq!(printed(json, &JsonForm::laid_out(layout)).as_deref(), Some(expected));
        }
        for text in ["{", "", "{]", "a b", "[1}"] {
            assert_eq!(printed(text, &JsonForm::laid_out(JsonLayout::Compact)), None, "{text:?}");
        }
    }

    #[test]
    fn keys_are_sorted_in_every_object() {
        let form = JsonForm { sorted: true, ..JsonForm::laid_out(JsonLayout::Compact) };
        let json = r#"{"b":[{"d":1,"c":2}],"a":{}}"#;
        assert_eq!(printed(json, &form).as_deref(), Some(r#"{"a":{},"b":[{"c":2,"d":1}]}"#));
    }

    #[test]
    fn escapes_are_written_as_others_write_them() {
        let json = "[\"a/é<\\u00e9\\ud83d\\ude00\\n\\u0022\\\\u\\/\\u0000\"]";
        for (escapes, expected) in [
            (JsonEscapes::None, "[\"a/é<é😀\\n\\u0022\\\\u/\\u0000\"]"),
            (JsonEscapes::Ascii, "[\"a/\\u00e9<\\u00e9\\ud83d\\ude00\\n\\u0022\\\\u/\\u0000\"]"),
            (JsonEscapes::Php, "[\"a\\/\\u00e9<\\u00e9\\ud83d\\ude00\\n\\u0022\\\\u\\/\\u0000\"]"),
            (JsonEscapes::Slashes, "[\"a\\/é<é😀\\n\\u0022\\\\u\\/\\u0000\"]"),
            (JsonEscapes::Html, "[\"a/é\\u003cé😀\\n\\u0022\\\\u/\\u0000\"]"),
        ] {
            let form = JsonForm { escapes: Some(escapes), ..JsonForm::laid_out(JsonLayout::Compact) };
            assert_eq!(printed(json, &form).as_deref(), Some(expected), "{escapes:?}");
        }
    }

    #[test]
    fn few_keys_may_be_in_order_by_chance() {
        let sorted = |json: &str| Json::parse(json.as_bytes()).expect("json").looks_sorted();
        assert!(sorted(r#"[{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6}]"#));
        assert!(!sorted(r#"{"a":1,"b":2}"#));
        assert!(!sorted(r#"{"a":{"z":1,"y":2},"b":2,"c":3,"d":4,"e":5,"f":6}"#));
    }
}
