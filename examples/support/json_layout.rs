//! Changes the white space of JSON and nothing else. Parsing and printing would not do: that sorts the keys, and writes
//! numbers and escapes its own way, whereas a signature covers every byte.

use serde::de::IgnoredAny;

const WHITE_SPACE: [char; 4] = [' ', '\t', '\r', '\n'];
const PUNCTUATION: [char; 6] = ['{', '}', '[', ']', ',', ':'];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Layout {
    /// `{"a":1,"b":[]}`
    Compact,
    /// `{"a": 1, "b": []}`, as Python prints it.
    Spaced,
    /// A line for each member, indented by two spaces, as Stripe sends it.
    Indented,
}

/// The same JSON in another layout; `None` when it is not JSON.
pub(crate) fn relaid(json: &str, layout: Layout) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(json).ok()?;
    let mut out = String::with_capacity(json.len());
    let (mut depth, mut previous) = (0, "");
    for token in tokens(json) {
        depth -= usize::from(closes(token));
        out.push_str(&layout.gap(previous, token, depth));
        out.push_str(token);
        depth += usize::from(opens(token));
        previous = token;
    }
    Some(out)
}

impl Layout {
    /// The white space between two tokens.
    fn gap(self, previous: &str, token: &str, depth: usize) -> String {
        // Empty objects and arrays, where both are true, stay in one piece.
        let line_ends = previous == "," || opens(previous) != closes(token);
        match (self, previous) {
            (Self::Spaced, "," | ":") | (Self::Indented, ":") => " ".to_owned(),
            (Self::Indented, _) if line_ends => format!("\n{}", "  ".repeat(depth)),
            _ => String::new(),
        }
    }
}

fn opens(token: &str) -> bool {
    matches!(token, "{" | "[")
}

fn closes(token: &str) -> bool {
    matches!(token, "}" | "]")
}

fn tokens(json: &str) -> impl Iterator<Item = &str> {
    let mut rest = json;
    std::iter::from_fn(move || {
        rest = rest.trim_start_matches(WHITE_SPACE);
        let (token, after) = rest.split_at(token_length(rest)?);
        rest = after;
        Some(token)
    })
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
