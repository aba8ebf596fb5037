use std::fmt::{self, Write as _};

/// A form of a JSON text.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JsonForm {
    /// Its white space.
    pub layout: JsonLayout,
    /// Whether the keys of each object are in alphabetical order. Otherwise they are in the order in which they came.
    pub sorted: bool,
    /// Its escapes, if they are not those with which it came.
    pub escapes: Option<JsonEscapes>,
}

/// The white space of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonLayout {
    /// `{"a":1,"b":[]}`
    Compact,
    /// `{"a": 1, "b": []}`, as Python prints it.
    Spaced,
    /// A line for each member.
    #[non_exhaustive]
    Indented {
        /// The spaces by which each level is indented.
        spaces: u8,
    },
}

/// The characters that a JSON text escapes though it need not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonEscapes {
    /// None.
    None,
    /// Those beyond ASCII, as Python does.
    Ascii,
    /// Those beyond ASCII, and slashes, as PHP does.
    Php,
    /// Slashes.
    Slashes,
    /// `<`, `>` and `&`, as Go does.
    Html,
}

impl JsonForm {
    #[cfg(test)]
    pub(super) fn laid_out(layout: JsonLayout) -> Self {
        Self { layout, sorted: false, escapes: None }
    }
}

impl fmt::Display for JsonForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.layout {
            JsonLayout::Compact => f.write_str("as compact JSON")?,
            JsonLayout::Spaced => f.write_str("as JSON with a space after commas and colons")?,
            JsonLayout::Indented { spaces: 2 } => f.write_str("as indented JSON")?,
            JsonLayout::Indented { spaces } => write!(f, "as JSON indented by {spaces} spaces")?,
        }
        if self.sorted {
            f.write_str(", with its keys in alphabetical order")?;
        }
        f.write_str(match self.escapes {
            None => "",
            Some(JsonEscapes::None) => ", with no needless escapes",
            Some(JsonEscapes::Ascii) => ", with all but ASCII escaped",
            Some(JsonEscapes::Php) => ", with slashes and all but ASCII escaped",
            Some(JsonEscapes::Slashes) => ", with slashes escaped",
            Some(JsonEscapes::Html) => ", with <, > and & escaped",
        })
    }
}

impl JsonEscapes {
    /// Writes the content of a JSON string with these escapes in place of its own.
    pub(super) fn write(self, out: &mut String, text: &str) {
        without_needless_escapes(text).chars().for_each(|character| self.push(out, character));
    }

    fn push(self, out: &mut String, character: char) {
        let is_escaped = match self {
            Self::None => false,
            Self::Ascii => !character.is_ascii(),
            Self::Php => !character.is_ascii() || character == '/',
            Self::Slashes => character == '/',
            Self::Html => matches!(character, '<' | '>' | '&' | '\u{2028}' | '\u{2029}'),
        };
        match (is_escaped, character) {
            (false, _) => out.push(character),
            (true, '/') => out.push_str("\\/"),
            (true, _) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let _ = write!(out, "\\u{unit:04x}");
                }
            }
        }
    }
}

/// The content of a string, with `\/` and `\u…` written plainly where that is allowed.
fn without_needless_escapes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let Some(kind) = after.chars().next() else { return plain };
        match (kind, unescaped(after)) {
            ('/', _) => {
                plain.push('/');
                rest = &after[1..];
            }
            ('u', Some((character, length))) => {
                plain.push(character);
                rest = &after[length..];
            }
            _ => {
                plain.push('\\');
                plain.push(kind);
                rest = &after[kind.len_utf8()..];
            }
        }
    }
    plain + rest
}

/// The character of the escape `uXXXX`, or of two of them, if it needs none; and the length of the escape.
fn unescaped(escape: &str) -> Option<(char, usize)> {
    let unit = |at: usize| u16::from_str_radix(escape.get(at..at + 4)?, 16).ok();
    let first = unit(1)?;
    let (character, length) = match char::from_u32(u32::from(first)) {
        Some(character) => (character, 5),
        None => {
            escape.get(5..7).filter(|next| *next == "\\u")?;
            let pair = char::decode_utf16([first, unit(7)?]).next()?;
            (pair.ok()?, 11)
        }
    };
    (!character.is_control() && !matches!(character, '"' | '\\')).then_some((character, length))
}
