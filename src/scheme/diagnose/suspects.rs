use std::fmt;

use zeroize::Zeroizing;

use super::finding::SecretSlip;
use crate::scheme::Encoding;
use crate::secrets::{Algorithm, Key, Secrets};

/// A secret that a delivery may have been signed with: the text as it was configured or copied, with whatever is wrong
/// with it.
///
/// A suspect never prints, and its memory is overwritten when it is dropped.
#[derive(Clone)]
pub struct Suspect {
    text: Zeroizing<String>,
    label: Option<Box<str>>,
}

impl Suspect {
    /// Takes the text exactly as given. Any text will do, also one that is not a valid secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: Zeroizing::new(text.into()), label: None }
    }

    /// Sets the name by which findings call this secret, such as `test mode`. Unlabelled ones are named by their
    /// position, from `1`.
    #[must_use]
    pub fn label(mut self, label: impl Into<Box<str>>) -> Self {
        self.label = Some(label.into());
        self
    }
}

impl fmt::Debug for Suspect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspect").field("label", &self.label).finish_non_exhaustive()
    }
}

impl From<&str> for Suspect {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<String> for Suspect {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// The secrets that [`diagnose`](fn@super::diagnose) tries beside those of the scheme.
///
/// It is made from one text or [`Suspect`], or from an array or a `Vec` of them.
#[derive(Clone, Debug, Default)]
pub struct Suspects(Vec<Suspect>);

impl Suspects {
    /// No secrets but those of the scheme.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }
}

impl<T: Into<Suspect>> From<T> for Suspects {
    fn from(one: T) -> Self {
        Self(vec![one.into()])
    }
}

impl<T: Into<Suspect>> From<Vec<T>> for Suspects {
    fn from(all: Vec<T>) -> Self {
        Self(all.into_iter().map(Into::into).collect())
    }
}

impl<T: Into<Suspect>, const N: usize> From<[T; N]> for Suspects {
    fn from(all: [T; N]) -> Self {
        Self(all.into_iter().map(Into::into).collect())
    }
}

/// A key made from a suspect.
pub(super) struct SuspectedKey {
    pub(super) label: Option<Box<str>>,
    /// Returns the change that makes this key of the text, if it needs one.
    pub(super) slip: Option<SecretSlip>,
    pub(super) key: Key,
}

impl Suspects {
    /// The keys of all suspects: of their texts as they are, and with each of the usual slips undone.
    pub(super) fn keys(&self, secrets: &Secrets) -> Vec<SuspectedKey> {
        let numbered = self.0.iter().zip(1_usize..);
        numbered.flat_map(|(suspect, number)| suspect.keys(self.label(suspect, number).as_deref(), secrets)).collect()
    }

    /// Only one of several secrets needs a name.
    fn label(&self, suspect: &Suspect, number: usize) -> Option<Box<str>> {
        let position = (self.0.len() > 1).then(|| number.to_string().into());
        suspect.label.clone().or(position)
    }
}

impl Suspect {
    fn keys(&self, label: Option<&str>, secrets: &Secrets) -> Vec<SuspectedKey> {
        let trimmed = self.text.trim();
        let bare = trimmed.trim_matches(['"', '\'']);
        let unprefixed = bare.strip_prefix(WHSEC);
        let prefixed = Zeroizing::new(format!("{WHSEC}{bare}"));
        let texts = [
            (None, Some(&**self.text)),
            (Some(SecretSlip::WhiteSpace), Some(trimmed)),
            (Some(SecretSlip::Quotes), Some(bare)),
            (Some(SecretSlip::Prefix), unprefixed),
            (Some(SecretSlip::NoPrefix), Some(&**prefixed)),
        ];
        let keys = texts.into_iter().filter_map(|(slip, text)| Some((slip, secrets.key(text?).ok()?)));
        let mut keys: Vec<(Option<SecretSlip>, Key)> = keys.collect();
        // A scheme of public keys has no other way to read a text.
        let algorithm = keys.iter().map(|(_, key)| key.algorithm()).find(|algorithm| is_symmetric(*algorithm));
        if let Some(algorithm) = algorithm {
            let encoded = unprefixed.unwrap_or(bare);
            for (slip, encoding, text) in [
                (SecretSlip::TextIsKey, Encoding::Text, bare),
                (SecretSlip::TextIsKey, Encoding::Text, encoded),
                (SecretSlip::Base64, Encoding::Base64, encoded),
                (SecretSlip::Hex, Encoding::Hex, encoded),
            ] {
                let key = encoding.secret(text).and_then(|bytes| Key::new(algorithm, &bytes));
                keys.extend(key.ok().map(|key| (Some(slip), key)));
            }
        }
        keys.into_iter().map(|(slip, key)| SuspectedKey { label: label.map(Box::from), slip, key }).collect()
    }
}

const WHSEC: &str = "whsec_";

fn is_symmetric(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::HmacSha256 | Algorithm::HmacSha1 | Algorithm::KeyedSha256)
}
