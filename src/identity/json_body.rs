//! Reads a few fields of a JSON body without building a tree.

use std::array;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::iter;

use super::json_scanner::{ScanError, Scanner};

/// Reads the fields at `paths`, in their order, from a body that must be one valid JSON text.
///
/// The whole body is validated, also after the last field is found. Keys are compared unescaped.
pub(crate) fn read<'a, const N: usize>(body: &'a [u8], paths: [&JsonPath; N]) -> Result<[Field<'a>; N], JsonBodyError> {
    let text = std::str::from_utf8(body).map_err(|_| JsonBodyError::NotUtf8)?;
    let mut reader = FieldReader { scanner: Scanner::new(text), paths, fields: [const { Field::Absent }; N] };
    reader.document()?;
    Ok(reader.fields)
}

/// Returns the raw text of each element of an array, such as a [`Field::Other`] holds. `None` if `array` is not an
/// array.
pub(crate) fn elements(array: &str) -> Option<impl Iterator<Item = &str>> {
    let mut scanner = Scanner::new(array);
    if scanner.peek_token() != b'[' {
        return None;
    }
    // Validates the whole array first: an array that breaks off has no elements, not some.
    let mut whole = scanner;
    whole.skip_value().and_then(|()| whole.end()).ok()?;
    let mut more = scanner.begin_value().ok()?;
    Some(iter::from_fn(move || {
        if !more {
            return None;
        }
        let element = scanner.raw_value().ok()?;
        more = scanner.next_item().ok()?;
        Some(element)
    }))
}

/// The value at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Field<'a> {
    /// There is no value.
    Absent,
    /// A string, unescaped.
    Text(Cow<'a, str>),
    /// A number, boolean, null, array or object, as it is written in the body.
    Other(&'a str),
}

impl<'a> Field<'a> {
    /// The string, if the value is one.
    #[inline(always)]
    pub(crate) fn text(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Text(text) => Some(text),
            Self::Absent | Self::Other(_) => None,
        }
    }
}

/// The reason why a body cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JsonBodyError {
    /// The body is empty, or contains only white space.
    Empty,
    /// The bytes are not UTF-8.
    NotUtf8,
    /// The text is not JSON from this byte on.
    Syntax {
        /// The number of bytes before it.
        offset: usize,
    },
    /// Arrays and objects nest deeper than 127 levels.
    TooDeep,
    /// A key on one of the paths occurs twice in its object. Two parsers could read two different events.
    RepeatedKey,
}

impl JsonBodyError {
    /// Explains the error to the receiver's operator. The text contains nothing from the body.
    pub(crate) const fn explanation(&self) -> &'static str {
        match self {
            Self::Empty => "the body is empty: a json text was expected",
            Self::NotUtf8 => "the body is not utf-8: a json text was expected",
            Self::Syntax { .. } => "the body is not valid json",
            Self::TooDeep => "the body nests arrays and objects deeper than 127 levels",
            Self::RepeatedKey => "the body repeats a key that leads to the id or the type: it must occur once",
        }
    }
}

impl fmt::Display for JsonBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.explanation())?;
        match self {
            Self::Syntax { offset } => write!(f, " at byte {offset}"),
            _ => Ok(()),
        }
    }
}

impl Error for JsonBodyError {}

impl From<ScanError> for JsonBodyError {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::Syntax { offset } => Self::Syntax { offset },
            ScanError::TooDeep => Self::TooDeep,
        }
    }
}

struct FieldReader<'a, 'p, const N: usize> {
    scanner: Scanner<'a>,
    paths: [&'p JsonPath; N],
    fields: [Field<'a>; N],
}

/// For each path, whether it leads to the current object.
type Followed<const N: usize> = [bool; N];

impl<'a, const N: usize> FieldReader<'a, '_, N> {
    fn document(&mut self) -> Result<(), JsonBodyError> {
        match self.scanner.peek_token() {
            b'{' => self.object([true; N], 0)?,
            _ if self.scanner.at_end() => return Err(JsonBodyError::Empty),
            _ => self.scanner.skip_value()?,
        }
        Ok(self.scanner.end()?)
    }

    /// Reads the object that the `followed` paths lead to. The recursion depth is limited by the number of keys in a
    /// path.
    fn object(&mut self, followed: Followed<N>, level: usize) -> Result<(), JsonBodyError> {
        let mut seen = [false; N];
        let mut more = self.scanner.begin_value()?;
        while more {
            let key = self.scanner.key()?;
            let named: Followed<N> = array::from_fn(|i| followed[i] && self.paths[i].names(level, &key));
            if (0..N).any(|i| named[i] && seen[i]) {
                return Err(JsonBodyError::RepeatedKey);
            }
            seen = array::from_fn(|i| seen[i] || named[i]);
            self.member(named, level)?;
            more = self.scanner.next_item()?;
        }
        Ok(())
    }

    /// Reads the value of a key that stands at `level` in the `named` paths.
    fn member(&mut self, named: Followed<N>, level: usize) -> Result<(), JsonBodyError> {
        if named == [false; N] {
            return Ok(self.scanner.skip_value()?);
        }
        let ending: Followed<N> = array::from_fn(|i| named[i] && self.paths[i].ends_at(level));
        let deeper: Followed<N> = array::from_fn(|i| named[i] && !ending[i]);
        match self.scanner.peek_token() {
            b'"' if ending.contains(&true) => {
                let text = self.scanner.string()?;
                self.found(ending, &Field::Text(text));
            }
            b'{' if deeper.contains(&true) => {
                let start = self.scanner.offset();
                self.object(deeper, level + 1)?;
                self.found(ending, &Field::Other(self.scanner.text_since(start)));
            }
            _ => {
                let raw = self.scanner.raw_value()?;
                self.found(ending, &Field::Other(raw));
            }
        }
        Ok(())
    }

    fn found(&mut self, ending: Followed<N>, value: &Field<'a>) {
        for (field, ends) in self.fields.iter_mut().zip(ending) {
            if ends {
                *field = value.clone();
            }
        }
    }
}

/// The most keys a path may have. It limits the reader's recursion, however deeply the body nests.
const MAX_KEYS: usize = 8;

/// The path to a field in a JSON body: object keys from the top, such as `event.id`.
///
/// Dots separate the keys, so a key that contains a dot cannot be named.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct JsonPath {
    text: Box<str>,
    keys: Box<[Box<str>]>,
}

impl JsonPath {
    /// `None` if the text or one of its keys is empty, or if there are more than eight keys.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let keys: Box<[Box<str>]> = text.split('.').map(Box::from).collect();
        let sound = keys.len() <= MAX_KEYS && keys.iter().all(|key| !key.is_empty());
        sound.then(|| Self { text: text.into(), keys })
    }

    /// The path to a top-level key.
    pub(crate) fn key(key: &str) -> Self {
        Self { text: key.into(), keys: [key.into()].into() }
    }

    /// The path as it was written.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the key at `level`, counted from the top, is `key`.
    fn names(&self, level: usize, key: &str) -> bool {
        self.keys.get(level).is_some_and(|own| **own == *key)
    }

    /// Whether the key at `level` is the last.
    fn ends_at(&self, level: usize) -> bool {
        self.keys.len() == level + 1
    }
}

impl fmt::Debug for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonPath({})", self.as_str())
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
