use std::sync::Arc;

use crate::error::ConfigError;
use crate::rejection::{Rejection, RejectionKind};
use crate::scheme::{Encoding, Proof};
use crate::secrets::{Algorithm, Key};

/// The format of the signature's header, as in `sha256={hex}` or `t={timestamp},v1={hex}`.
#[derive(Clone, Debug)]
pub(super) struct SignatureFormat {
    /// Describes the format to the operator.
    hint: Arc<str>,
    encoding: Encoding,
    layout: Layout,
}

#[derive(Clone, Debug)]
enum Layout {
    /// One signature after a prefix, which may be empty.
    One { prefix: Box<[u8]> },
    /// `key=value` pairs in any order. Another character may stand in place of `=`.
    List { separator: u8, assignment: u8, timestamp: Option<Box<[u8]>>, versions: Vec<(Box<[u8]>, Algorithm)> },
}

impl SignatureFormat {
    pub(super) fn parse(text: &str, algorithm: Algorithm) -> Result<Self, ConfigError> {
        Self::try_parse(text, algorithm).ok_or_else(|| {
            ConfigError::scheme(format!(
                "{text:?} is not a signature format: write sha256={{hex}}, {{base64}}, v1={{hex}},… or \
                 t={{timestamp}},v1={{hex}}"
            ))
        })
    }

    fn try_parse(text: &str, algorithm: Algorithm) -> Option<Self> {
        let hint = format!("it must read {text}").into();
        let repeated = text.strip_suffix('…').and_then(|text| Some((text, text.bytes().last()?)));
        let (text, trailing) = match repeated {
            Some((text, separator)) => (text.strip_suffix(char::from(separator))?, Some(separator)),
            None => (text, None),
        };
        let (first, rest) = text.split_once('}')?;
        if rest.is_empty() && trailing.is_none() {
            let (prefix, encoding) = split_placeholder(first)?;
            let layout = Layout::One { prefix: prefix.as_bytes().into() };
            return Some(Self { hint, encoding: encoding?, layout });
        }
        let separator = rest.bytes().next().or(trailing)?;
        let assignment = split_placeholder(first)?.0.bytes().last()?;
        let (mut timestamp, mut versions, mut written) = (None, Vec::new(), None);
        for element in text.split(char::from(separator)) {
            let (key, encoding) = split_placeholder(element.strip_suffix('}')?)?;
            let key: Box<[u8]> = key.strip_suffix(char::from(assignment))?.as_bytes().into();
            match encoding {
                Some(_) if written.is_none_or(|written| encoding == Some(written)) => versions.push((key, algorithm)),
                None if timestamp.is_none() => timestamp = Some(key),
                _ => return None,
            }
            written = encoding.or(written);
        }
        Some(Self { hint, encoding: written?, layout: Layout::List { separator, assignment, timestamp, versions } })
    }

    /// Accepts another version in the same list, computed with another algorithm.
    pub(super) fn add_version(&mut self, version: &str, algorithm: Algorithm) -> Result<(), ConfigError> {
        match &mut self.layout {
            Layout::List { versions, .. } => {
                versions.push((version.as_bytes().into(), algorithm));
                Ok(())
            }
            Layout::One { .. } => Err(ConfigError::scheme("only a list has room for another version")),
        }
    }

    pub(super) fn has_timestamp(&self) -> bool {
        matches!(&self.layout, Layout::List { timestamp: Some(_), .. })
    }

    /// Adds the header's signatures to `proof`. Returns the text of the timestamp if the header contains one.
    pub(super) fn read<'a>(
        &self,
        value: &'a [u8],
        proof: &mut Proof,
        algorithm: Algorithm,
    ) -> Result<Option<&'a [u8]>, Rejection> {
        match &self.layout {
            Layout::One { prefix } => {
                let signature = value.strip_prefix(&**prefix).ok_or_else(|| self.malformed())?;
                proof.add(algorithm, self.encoding, signature);
                Ok(None)
            }
            Layout::List { separator, assignment, timestamp, versions } => {
                let mut elements = Elements::new(value, *separator, *assignment);
                let found = self.read_list(&mut elements, timestamp.as_deref(), versions, proof)?;
                match timestamp {
                    Some(_) if found.is_none() => Err(Rejection::malformed("its timestamp is missing")),
                    _ => Ok(found),
                }
            }
        }
    }

    fn read_list<'a>(
        &self,
        elements: &mut Elements<'a>,
        timestamp: Option<&[u8]>,
        versions: &[(Box<[u8]>, Algorithm)],
        proof: &mut Proof,
    ) -> Result<Option<&'a [u8]>, Rejection> {
        let not_a_list = |NotAList| self.malformed();
        let mut found = None;
        while let Some(key) = elements.key().map_err(not_a_list)? {
            if timestamp == Some(key) {
                if found.replace(elements.value().map_err(not_a_list)?).is_some() {
                    return Err(Rejection::malformed("its timestamp occurs twice"));
                }
            } else if let Some((_, algorithm)) = versions.iter().find(|(version, _)| **version == *key) {
                self.read_signature(elements, *algorithm, proof).map_err(not_a_list)?;
            } else {
                elements.value().map_err(not_a_list)?;
            }
        }
        Ok(found)
    }

    /// The length of a signature is usually known, and a decodable signature is visible ASCII, so nearly all are read
    /// without a search for the separator.
    fn read_signature(
        &self,
        elements: &mut Elements<'_>,
        algorithm: Algorithm,
        proof: &mut Proof,
    ) -> Result<(), NotAList> {
        let length = self.encoding.length(algorithm);
        let usual = length.and_then(|length| self.encoding.signature(algorithm, elements.peek(length)?));
        match (usual, length) {
            (Some(signature), Some(length)) => {
                proof.push_signature(Some(signature));
                elements.take(length)?;
            }
            _ => proof.add(algorithm, self.encoding, elements.value()?),
        }
        Ok(())
    }

    fn malformed(&self) -> Rejection {
        Rejection::new(RejectionKind::MalformedSignature).with_hint(&self.hint)
    }

    /// Formats the header with the signatures of these keys: all of them if it is a list, else the first.
    pub(super) fn write(
        &self,
        timestamp: &str,
        keys: &[&Key],
        sign: impl Fn(&Key) -> Result<Vec<u8>, ConfigError>,
    ) -> Result<String, ConfigError> {
        let signature = |key: &Key| sign(key).map(|bytes| self.encoding.write(&bytes));
        match &self.layout {
            Layout::One { prefix } => {
                let first = keys.first().map(|key| signature(key)).transpose()?.unwrap_or_default();
                Ok(String::from_utf8_lossy(prefix).into_owned() + &first)
            }
            Layout::List { separator, assignment, timestamp: name, versions } => {
                let element = |key: &[u8], value: &str| {
                    format!("{}{}{value}", String::from_utf8_lossy(key), char::from(*assignment))
                };
                let mut elements: Vec<String> = name.iter().map(|name| element(name, timestamp)).collect();
                for key in keys {
                    let version = versions.iter().find(|(_, algorithm)| *algorithm == key.algorithm());
                    let (version, _) =
                        version.ok_or_else(|| ConfigError::scheme("no version is signed with such a key"))?;
                    elements.push(element(version, &signature(key)?));
                }
                Ok(elements.join(&char::from(*separator).to_string()))
            }
        }
    }
}

/// Splits `v1={hex` into `v1=` and the encoding of the signature, which is `None` for the timestamp.
fn split_placeholder(element: &str) -> Option<(&str, Option<Encoding>)> {
    let (before, name) = element.split_once('{')?;
    let encoding = match name {
        "hex" => Some(Encoding::Hex),
        "base64" => Some(Encoding::Base64),
        "token" => Some(Encoding::Text),
        "timestamp" => None,
        _ => return None,
    };
    Some((before, encoding))
}

/// The unread rest of a list `key=value,key=value`, with its own separators. One malformed element makes the whole list
/// malformed.
pub(super) struct Elements<'a> {
    rest: &'a [u8],
    separator: u8,
    assignment: u8,
}

/// The text is not such a list.
pub(super) struct NotAList;

impl<'a> Elements<'a> {
    pub(super) fn new(text: &'a [u8], separator: u8, assignment: u8) -> Self {
        Self { rest: text, separator, assignment }
    }

    /// The next element's key: a plain word.
    pub(super) fn key(&mut self) -> Result<Option<&'a [u8]>, NotAList> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let is_plain = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let length = self.rest.iter().take_while(is_plain).count();
        match self.rest[length..].split_first() {
            Some((assignment, rest)) if *assignment == self.assignment && length > 0 => {
                Ok(Some(&std::mem::replace(&mut self.rest, rest)[..length]))
            }
            _ => Err(NotAList),
        }
    }

    /// The element's value: visible ASCII up to the separator.
    pub(super) fn value(&mut self) -> Result<&'a [u8], NotAList> {
        let length = self.rest.iter().take_while(|byte| byte.is_ascii_graphic() && **byte != self.separator).count();
        self.take(length)
    }

    /// The element's value, if it has this length. The caller checks that it is visible ASCII.
    pub(super) fn peek(&self, length: usize) -> Option<&'a [u8]> {
        let ends_there = self.rest.get(length).is_none_or(|byte| *byte == self.separator);
        self.rest.get(..length).filter(|_| ends_there)
    }

    /// Consumes a value of this length and the separator after it. Another element must follow the separator.
    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], NotAList> {
        let (value, rest) = self.rest.split_at(length);
        self.rest = match rest {
            [] => rest,
            [separator, rest @ ..] if *separator == self.separator && !rest.is_empty() => rest,
            _ => return Err(NotAList),
        };
        Ok(value)
    }
}
