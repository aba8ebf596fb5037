use std::fmt;

use crate::error::ConfigError;
use crate::scheme::Proof;
use crate::scheme::proof::SmallBytes;

/// The signed text, as in `v0:{timestamp}:{body}`.
#[derive(Clone)]
pub(super) struct SignedText {
    text: Box<str>,
    before: Vec<Part>,
    after: Vec<Part>,
    covers_body: bool,
}

#[derive(Clone, PartialEq)]
enum Part {
    Literal(Box<[u8]>),
    Timestamp,
    Id,
    Url,
    Method,
}

/// The values of the parts in one delivery.
#[derive(Clone, Copy, Default)]
pub(super) struct SignedValues<'a> {
    pub(super) timestamp: &'a [u8],
    pub(super) id: &'a [u8],
    pub(super) url: &'a str,
    pub(super) method: &'a str,
}

impl SignedText {
    pub(super) fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::try_parse(text).ok_or_else(|| {
            ConfigError::scheme(format!(
                "{text:?} is not a valid signed text: write literals, {{timestamp}}, {{id}}, {{url}}, {{method}} and \
                 {{body}} once"
            ))
        })
    }

    fn try_parse(text: &str) -> Option<Self> {
        let (before, after, covers_body) = match text.split_once("{body}") {
            Some((before, after)) => (before, after, true),
            None => (text, "", false),
        };
        Some(Self { text: text.into(), before: parts(before)?, after: parts(after)?, covers_body })
    }

    pub(super) fn has_timestamp(&self) -> bool {
        self.has(&Part::Timestamp)
    }

    pub(super) fn has_id(&self) -> bool {
        self.has(&Part::Id)
    }

    pub(super) fn has_url(&self) -> bool {
        self.has(&Part::Url)
    }

    fn has(&self, part: &Part) -> bool {
        self.before.contains(part) || self.after.contains(part)
    }

    /// The literal on both sides of the timestamp after the id. Without it the signed text could be split elsewhere: an
    /// id could take in the text that follows it, or lose a part of its own.
    pub(super) fn id_separator(&self) -> Option<&[u8]> {
        self.before.windows(4).find_map(|parts| match parts {
            [Part::Id, Part::Literal(one), Part::Timestamp, Part::Literal(other)] if one == other => Some(&**one),
            _ => None,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    pub(super) fn covers_body(&self) -> bool {
        self.covers_body
    }

    /// Whether there is no separator between the timestamp and the body. Digits could then move from one to the other.
    pub(super) fn has_timestamp_next_to_body(&self) -> bool {
        self.covers_body
            && (self.before.last() == Some(&Part::Timestamp) || self.after.first() == Some(&Part::Timestamp))
    }

    /// Sets the signed text around the body, or instead of it, in `proof`.
    pub(super) fn write_to(&self, proof: &mut Proof, values: &SignedValues<'_>) {
        self.before.iter().for_each(|part| part.push_to(proof.prefix_mut(), values));
        self.after.iter().for_each(|part| part.push_to(proof.suffix_mut(), values));
        if !self.covers_body {
            proof.exclude_body();
        }
    }
}

impl Part {
    fn push_to(&self, bytes: &mut SmallBytes, values: &SignedValues<'_>) {
        bytes.push(match self {
            Self::Literal(literal) => literal,
            Self::Timestamp => values.timestamp,
            Self::Id => values.id,
            Self::Url => values.url.as_bytes(),
            Self::Method => values.method.as_bytes(),
        });
    }
}

fn parts(mut text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (literal, rest) = text.split_once('{').unwrap_or((text, ""));
        if literal.contains('}') {
            return None;
        }
        if !literal.is_empty() {
            parts.push(Part::Literal(literal.as_bytes().into()));
        }
        if literal.len() == text.len() {
            break;
        }
        let (name, after) = rest.split_once('}')?;
        parts.push(match name {
            "timestamp" => Part::Timestamp,
            "id" => Part::Id,
            "url" => Part::Url,
            "method" => Part::Method,
            _ => return None,
        });
        text = after;
    }
    Some(parts)
}

impl fmt::Display for SignedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for SignedText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
