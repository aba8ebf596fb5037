use std::fmt;
use std::ops::Deref;
use std::time::SystemTime;

use super::Encoding;
use crate::identity::Coverage;
use crate::rejection::{Rejection, RejectionKind};
use crate::secrets::{Algorithm, Signature};

/// More signatures than this are an attack, not a rotation.
const MAX_SIGNATURES: usize = 16;

/// The limit for signatures of private keys. It is lower, since each of them must be verified under every key and
/// cannot just be compared.
const MAX_ASYMMETRIC: usize = 4;

const TOO_MANY: Rejection = Rejection::malformed("it has more than 16 signatures, or more than 4 of private keys");

/// What a delivery carries to prove its sender, not verified yet: signatures, and the message that they cover.
///
/// The message is the body, between [`prefix`](Proof::prefix) and [`suffix`](Proof::suffix), unless the proof is
/// [`of`](Proof::of) another message.
#[derive(Clone)]
pub struct Proof {
    first: Option<Signature>,
    more: Vec<Signature>,
    offered: usize,
    prefix: SmallBytes,
    suffix: SmallBytes,
    covers: Covers,
    timestamp: Option<SystemTime>,
    id: Option<Box<str>>,
    alternative: Option<Box<Proof>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Covers {
    Body,
    /// The whole message is in `prefix`.
    Message,
    /// As `Message`, and the message contains the digest of the body.
    MessageWithDigest,
    /// The scheme has to read the body first.
    Unknown,
}

impl Proof {
    /// Creates a proof of the body, without a signature yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            first: None,
            more: Vec::new(),
            offered: 0,
            prefix: SmallBytes::default(),
            suffix: SmallBytes::default(),
            covers: Covers::Body,
            timestamp: None,
            id: None,
            alternative: None,
        }
    }

    /// Creates a proof of `message` instead of the body, for schemes that sign fields of it. Then only [the proof's own
    /// id](Self::id) is [authenticated](crate::WebhookEvent::id_is_authenticated).
    #[must_use]
    pub fn of(message: &[u8]) -> Self {
        Self { covers: Covers::Message, ..Self::new() }.prefix(message)
    }

    /// Declares that the message contains the digest of the body, and that the scheme has compared it with the body.
    /// The proof then covers the body.
    #[must_use]
    pub fn with_digest_of_body(mut self) -> Self {
        if self.covers == Covers::Message {
            self.covers = Covers::MessageWithDigest;
        }
        self
    }

    /// Creates a proof that cannot be read from the head alone. [`Scheme::read_body`](super::Scheme::read_body) is
    /// called once the body has arrived.
    #[must_use]
    pub fn in_body() -> Self {
        Self { covers: Covers::Unknown, ..Self::new() }
    }

    /// Sets the signed bytes before the body.
    #[must_use]
    pub fn prefix(mut self, bytes: &[u8]) -> Self {
        self.prefix = SmallBytes::default();
        self.prefix.push(bytes);
        self
    }

    /// Sets the signed bytes after the body.
    #[must_use]
    pub fn suffix(mut self, bytes: &[u8]) -> Self {
        self.suffix = SmallBytes::default();
        self.suffix.push(bytes);
        self
    }

    /// Sets the time at which the sender claims to have signed.
    #[must_use]
    pub fn timestamp(mut self, time: SystemTime) -> Self {
        self.timestamp = Some(time);
        self
    }

    /// Sets the event's id, which the signatures must cover. [`IdSource::signed`](crate::identity::IdSource::signed)
    /// finds it.
    #[must_use]
    pub fn id(mut self, id: impl Into<Box<str>>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Accepts `other` as well, if a sender may have signed one of several messages.
    #[must_use]
    pub fn or(mut self, other: Self) -> Self {
        self.alternative = Some(match self.alternative.take() {
            Some(next) => Box::new(next.or(other)),
            None => Box::new(other),
        });
        self
    }

    /// Adds a signature. A text that is not a well-formed signature cannot match; it only counts towards the limit.
    pub fn add(&mut self, algorithm: Algorithm, encoding: Encoding, text: &[u8]) {
        self.push_signature(encoding.signature(algorithm, text));
    }

    /// Adds a signature that is already decoded.
    pub fn add_bytes(&mut self, algorithm: Algorithm, bytes: &[u8]) {
        self.push_signature(Signature::new(algorithm, bytes));
    }

    pub(super) fn push_signature(&mut self, signature: Option<Signature>) {
        self.offered += 1;
        match (signature, self.first) {
            (None, _) => {}
            (found, None) => self.first = found,
            (Some(signature), Some(_)) => self.more.push(signature),
        }
    }

    pub(super) fn prefix_mut(&mut self) -> &mut SmallBytes {
        &mut self.prefix
    }

    pub(super) fn suffix_mut(&mut self) -> &mut SmallBytes {
        &mut self.suffix
    }

    pub(super) fn exclude_body(&mut self) {
        self.covers = Covers::Message;
    }

    pub(super) fn set_timestamp(&mut self, time: SystemTime) {
        self.timestamp = Some(time);
    }

    /// Checks that this proof or one of its alternatives has a signature to compare, and that none of them exceeds the
    /// limits.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        let Some(alternative) = &self.alternative else { return self.check_signatures() };
        match (self.check_signatures(), alternative.check()) {
            (Err(rejection), Err(_)) => Err(rejection),
            _ if self.is_excessive() || alternative.is_excessive() => Err(TOO_MANY),
            _ => Ok(()),
        }
    }

    fn check_signatures(&self) -> Result<(), Rejection> {
        if self.covers == Covers::Unknown {
            return Ok(());
        }
        if self.is_excessive() {
            return Err(TOO_MANY);
        }
        match (self.first, self.offered) {
            (Some(_), _) => Ok(()),
            (None, 0) => Err(RejectionKind::UnsupportedSignature.into()),
            (None, _) => Err(Rejection::malformed("none of its signatures could be decoded")),
        }
    }

    fn is_excessive(&self) -> bool {
        let asymmetric = |signature: &&Signature| matches!(signature, Signature::Asymmetric(..));
        let excessive = self.offered > MAX_SIGNATURES
            || !self.more.is_empty() && self.signatures().filter(asymmetric).count() > MAX_ASYMMETRIC;
        excessive || self.alternative.as_ref().is_some_and(|alternative| alternative.is_excessive())
    }

    pub(super) fn signatures(&self) -> impl Iterator<Item = &Signature> {
        self.first.iter().chain(&self.more)
    }

    /// Whether the body is needed to read the proof.
    pub(super) fn is_in_body(&self) -> bool {
        self.covers == Covers::Unknown || self.alternative.as_ref().is_some_and(|alternative| alternative.is_in_body())
    }

    /// The signed message in parts, given the body.
    pub(super) fn message<'a>(&'a self, body: &'a [u8]) -> [&'a [u8]; 3] {
        let body = if self.covers == Covers::Body { body } else { &[] };
        [&self.prefix, body, &self.suffix]
    }

    pub(super) fn covers_body(&self) -> bool {
        self.covers == Covers::Body
    }

    /// How much of the delivery the signatures cover.
    pub(super) fn coverage(&self) -> Coverage {
        match self.covers {
            Covers::Body | Covers::MessageWithDigest => Coverage::Body,
            Covers::Message | Covers::Unknown => Coverage::Message,
        }
    }

    pub(super) fn signed_at(&self) -> Option<SystemTime> {
        self.timestamp
    }

    pub(super) fn take_id(&mut self) -> Option<Box<str>> {
        self.id.take()
    }

    pub(super) fn take_alternative(&mut self) -> Option<Box<Self>> {
        self.alternative.take()
    }
}

impl fmt::Debug for Proof {
    /// Omits the signed text: a URL may contain a password, a header a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof")
            .field("signatures", &self.offered)
            .field("timestamp", &self.timestamp)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Default for Proof {
    fn default() -> Self {
        Self::new()
    }
}

/// The number of bytes that need no allocation. A timestamp and a dot are at most 13.
const INLINE: usize = 22;

/// A few bytes inline, or more of them on the heap.
#[derive(Clone)]
pub(super) enum SmallBytes {
    Inline { bytes: [u8; INLINE], length: u8 },
    Heap(Vec<u8>),
}

impl SmallBytes {
    /// Appends `more`.
    pub(super) fn push(&mut self, more: &[u8]) {
        match self {
            Self::Heap(bytes) => bytes.extend_from_slice(more),
            Self::Inline { bytes, length } => {
                let end = usize::from(*length);
                match bytes.get_mut(end..end + more.len()) {
                    Some(room) => {
                        room.copy_from_slice(more);
                        *length += more.len() as u8;
                    }
                    None => *self = Self::Heap([&bytes[..end], more].concat()),
                }
            }
        }
    }
}

impl Default for SmallBytes {
    fn default() -> Self {
        Self::Inline { bytes: [0; INLINE], length: 0 }
    }
}

impl Deref for SmallBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { bytes, length } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_and_suffix_can_be_set_in_any_order() {
        let proof = Proof::new().suffix(b"after").prefix(b"before").prefix(b"be").suffix(b"af");
        assert_eq!(proof.message(b"body"), [&b"be"[..], b"body", b"af"]);
        assert_eq!(Proof::of(b"fields").message(b"body"), [&b"fields"[..], b"", b""]);
    }

    #[test]
    fn any_number_of_bytes_comes_back() {
        for length in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1_000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let (head, tail) = bytes.split_at(length / 2);
            let mut short = SmallBytes::default();
            short.push(head);
            short.push(tail);
            assert_eq!(*short, bytes);
        }
    }
}
