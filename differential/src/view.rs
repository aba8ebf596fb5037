use std::collections::BTreeSet;

use http::HeaderValue;

use crate::case::Case;
use crate::wire::{Form, Wire};

/// A delivery as the predicates of [`disagreements`](crate::disagreements) look at it.
pub struct View<'a> {
    pub case: &'a Case,
    wire: &'a Wire,
}

impl<'a> View<'a> {
    pub fn new(case: &'a Case, wire: &'a Wire) -> Self {
        Self { case, wire }
    }

    /// The value of a header that counts, by the name that the wire has for it.
    pub fn header(&self, name: &'static str) -> &'a [u8] {
        self.case.headers.get(self.named(name)).map(HeaderValue::as_bytes).unwrap_or_default()
    }

    pub fn has(&self, name: &str) -> bool {
        self.case.headers.contains_key(name)
    }

    pub fn id(&self) -> &'a [u8] {
        self.wire.id.map(|name| self.header(name)).unwrap_or_default()
    }

    pub fn has_empty_id(&self) -> bool {
        self.id().is_empty() && self.wire.id.is_some_and(|name| self.has(self.named(name)))
    }

    pub fn signature(&self) -> String {
        text(self.header(self.wire.signature))
    }

    /// The texts of all timestamps, in the order in which they stand.
    pub fn timestamps(&self) -> Vec<String> {
        match self.wire.form {
            Form::List { timestamp: Some(name), .. } => self.values(name),
            _ => self.wire.timestamp.map(|name| text(self.header(name))).into_iter().collect(),
        }
    }

    /// Whether a timestamp is a number with a sign or a leading zero.
    pub fn spells_timestamp_otherwise(&self) -> bool {
        let otherwise = |text: &String| {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            is_number(digits) && (digits.len() < text.len() || (digits.starts_with('0') && digits.len() > 1))
        };
        self.timestamps().iter().any(otherwise)
    }

    /// Whether a timestamp is a plain number, but of another length than this provider's can have.
    pub fn has_timestamp_of_another_length(&self) -> bool {
        let lengths = match (self.wire.form, self.wire.provider) {
            (_, "discord" | "sendgrid") => 10..=10,
            (Form::List { timestamp: Some(_), .. }, _) => 1..=12,
            _ => 1..=15,
        };
        self.timestamps().iter().any(|text| is_number(text) && !lengths.contains(&text.len()))
    }

    pub fn is_unchecked(&self) -> bool {
        self.case.tolerance.is_none()
    }

    /// The signatures that count.
    pub fn signatures(&self) -> Vec<String> {
        match self.wire.form {
            Form::One { prefix } => vec![self.signature().replacen(prefix, "", 1)],
            Form::List { version, .. } => self.values(version),
        }
    }

    /// How many signatures we count: those that Standard Webhooks has of private keys, too.
    pub fn offered(&self) -> usize {
        let asymmetric = if self.wire.id.is_some() { self.values("v1a").len() } else { 0 };
        self.signatures().len() + asymmetric
    }

    /// Whether one of the signatures cannot be one.
    pub fn has_undecodable_signature(&self) -> bool {
        !self.signatures().iter().all(|signature| self.wire.decode(signature).is_some_and(|bytes| bytes.len() == 32))
    }

    /// Whether a list has an element that is not a word and visible text behind it.
    pub fn has_no_element(&self) -> bool {
        let Form::List { between, .. } = self.wire.form else { return false };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_element = |element: &String| {
            element.split_once(between).is_some_and(|(key, value)| {
                !key.is_empty() && key.bytes().all(is_word) && value.bytes().all(|byte| byte.is_ascii_graphic())
            })
        };
        !self.elements().iter().all(is_element)
    }

    pub fn repeats_a_header(&self) -> bool {
        self.wire.proof_headers().into_iter().any(|name| self.case.headers.get_all(self.named(name)).iter().count() > 1)
    }

    pub fn has_a_long_header(&self) -> bool {
        self.wire.proof_headers().into_iter().any(|name| self.header(name).len() > 4_096)
    }

    pub fn has_secret(&self, is: fn(&str) -> bool) -> bool {
        self.case.secrets.iter().any(|secret| is(secret))
    }

    pub fn repeats_a_parameter(&self) -> bool {
        let mut names = BTreeSet::new();
        form_urlencoded::parse(&self.case.body).any(|(name, _)| !names.insert(name))
    }

    /// Of two families of headers, the one whose signature is there counts.
    fn named(&self, name: &'static str) -> &'static str {
        match name.strip_prefix("svix-") {
            Some("id") if !self.has("svix-signature") => "webhook-id",
            Some("timestamp") if !self.has("svix-signature") => "webhook-timestamp",
            Some("signature") if !self.has("svix-signature") => "webhook-signature",
            _ => name,
        }
    }

    fn values(&self, key: &str) -> Vec<String> {
        let Form::List { between, .. } = self.wire.form else { return Vec::new() };
        let elements = self.elements();
        let of_key = elements.iter().filter_map(|element| element.split_once(between)).filter(|(own, _)| *own == key);
        of_key.map(|(_, value)| value.to_owned()).collect()
    }

    fn elements(&self) -> Vec<String> {
        let Some(separator) = self.wire.separator() else { return Vec::new() };
        self.signature().split(separator).map(str::to_owned).collect()
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
