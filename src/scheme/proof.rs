use std::time::SystemTime;

use super::hex;
use super::short::Short;
use crate::rejection::{Rejection, RejectionKind};

/// The size of an HMAC-SHA256 tag.
pub(super) const TAG: usize = 32;

/// More signatures than this are an attack, not a rotation.
const MOST_SIGNATURES: usize = 16;

/// What the head of a delivery claims, still to be proved by the body.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    first: Option<[u8; TAG]>,
    more: Vec<[u8; TAG]>,
    offered: usize,
    before: Short,
    after: Vec<u8>,
    timestamp: Option<SystemTime>,
}

impl Proof {
    /// A proof of the body alone, without a signature yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What is signed before the body.
    #[must_use]
    pub fn prefix(mut self, bytes: &[u8]) -> Self {
        self.set_prefix(&[bytes]);
        self
    }

    /// What is signed after the body.
    #[must_use]
    pub fn suffix(mut self, bytes: &[u8]) -> Self {
        self.after = bytes.to_vec();
        self
    }

    /// When the sender says it signed.
    #[must_use]
    pub fn timestamp(mut self, time: SystemTime) -> Self {
        self.timestamp = Some(time);
        self
    }

    /// Adds a signature in hex, upper or lower case. One that is not exactly 64 hex digits cannot match; it only counts
    /// towards the cap.
    pub fn add_hex(&mut self, text: &[u8]) {
        match hex::decode(text) {
            Some(tag) => self.add(tag),
            None => self.offered += 1,
        }
    }

    /// What is signed before the body, in parts.
    pub(super) fn set_prefix(&mut self, parts: &[&[u8]]) {
        self.before = Short::concat(parts);
    }

    pub(super) fn set_timestamp(&mut self, time: SystemTime) {
        self.timestamp = Some(time);
    }

    pub(super) fn add(&mut self, tag: [u8; TAG]) {
        self.offered += 1;
        match self.first {
            None => self.first = Some(tag),
            Some(_) => self.more.push(tag),
        }
    }

    /// Whether there is something in it to compare with.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        let malformed = |detail| Err(Rejection::with_detail(RejectionKind::MalformedSignature, detail));
        if self.offered > MOST_SIGNATURES {
            return malformed("it has more than 16 signatures");
        }
        match (self.first, self.offered) {
            (Some(_), _) => Ok(()),
            (None, 0) => Err(RejectionKind::UnsupportedSignature.into()),
            (None, _) => malformed("no signature in it could be decoded"),
        }
    }

    pub(super) fn signatures(&self) -> impl Iterator<Item = &[u8; TAG]> {
        self.first.iter().chain(&self.more)
    }

    pub(super) fn before(&self) -> &[u8] {
        &self.before
    }

    pub(super) fn after(&self) -> &[u8] {
        &self.after
    }

    pub(crate) fn signed_at(&self) -> Option<SystemTime> {
        self.timestamp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_and_suffix_can_be_set_in_any_order() {
        let proof = Proof::new().suffix(b"after").prefix(b"before").prefix(b"be").suffix(b"af");
        assert_eq!((proof.before(), proof.after()), (&b"be"[..], &b"af"[..]));
    }
}
