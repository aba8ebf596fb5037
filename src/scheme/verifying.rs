use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use subtle::{Choice, ConstantTimeEq};

use super::{Head, Proof, Scheme};
use crate::identity::Coverage;
use crate::rejection::{Rejection, RejectionKind};
use crate::secrets::{Algorithm, Found, Key, Mac, Prepared, SecretSet, Signature, Tag};

/// The result of a successful verification.
#[derive(Clone)]
pub struct Verified {
    secret: Arc<Prepared>,
    signed_at: Option<SystemTime>,
    id: Option<Box<str>>,
    coverage: Coverage,
}

impl Verified {
    fn new(secret: Arc<Prepared>, proof: &mut Proof) -> Self {
        // A token proves nothing about the message it comes with, whatever the proof covers.
        let coverage = match secret.key.algorithm() {
            Algorithm::Token => Coverage::Nothing,
            _ => proof.coverage(),
        };
        Self { secret, signed_at: proof.signed_at(), id: proof.take_id(), coverage }
    }

    /// The label of the secret that matched.
    #[must_use]
    pub fn secret_label(&self) -> &str {
        &self.secret.label
    }

    /// The key that matched.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.secret.key
    }

    pub(crate) fn secret(&self) -> &Arc<Prepared> {
        &self.secret
    }

    /// The time at which the sender signed, if the scheme has a timestamp.
    #[must_use]
    pub fn signed_at(&self) -> Option<SystemTime> {
        self.signed_at
    }

    /// The event's id, if the scheme itself extracts it from the signed content.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }

    /// Whether every byte of the body is signed. `false` for a token, and for schemes that sign only some fields.
    #[must_use]
    pub fn covers_body(&self) -> bool {
        self.coverage == Coverage::Body
    }

    pub(crate) fn coverage(&self) -> Coverage {
        self.coverage
    }
}

impl fmt::Debug for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verified")
            .field("secret_label", &self.secret_label())
            .field("signed_at", &self.signed_at)
            .field("id", &self.id)
            .finish()
    }
}

/// Verifies a delivery whose body has already arrived, for use without the layer.
///
/// # Errors
/// The [`Rejection`] with which the layer would have refused it.
pub async fn verify(scheme: &(impl Scheme + ?Sized), head: &Head<'_>, body: &[u8]) -> Result<Verified, Rejection> {
    let proof = scheme.read(head)?;
    proof.check()?;
    let mut verifying = match scheme.secrets().begin(head)? {
        Found::Now(set) => Verifying::start(proof, &set, head.now())?,
        Found::Later(lookup) => Verifying::start(proof, &lookup.await?.set, head.now())?,
    };
    verifying.feed(body);
    verifying.finish(scheme, head, body)
}

/// Verifies a delivery under these secrets, in place of the scheme's own.
pub(super) fn verify_under(
    scheme: &(impl Scheme + ?Sized),
    head: &Head<'_>,
    body: &[u8],
    secrets: &Arc<SecretSet>,
) -> Result<Verified, Rejection> {
    let proof = scheme.read(head)?;
    proof.check()?;
    let mut verifying = Verifying::start(proof, secrets, head.now())?;
    verifying.feed(body);
    verifying.finish(scheme, head, body)
}

/// A verification that is fed with the body while it arrives.
#[expect(clippy::large_enum_variant, reason = "nearly always the large one, and it stays in its place")]
pub(crate) enum Verifying {
    Incremental(ProofCheck),
    /// The proof is in the body, and is read and checked once the whole body has arrived.
    AwaitingBody(Arc<SecretSet>),
}

impl Verifying {
    pub(crate) fn start(proof: Proof, secrets: &Arc<SecretSet>, now: SystemTime) -> Result<Self, Rejection> {
        match proof.is_in_body() {
            true => Ok(Self::AwaitingBody(secrets.clone())),
            false => ProofCheck::start(proof, secrets, now).map(Self::Incremental),
        }
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        if let Self::Incremental(check) = self {
            check.feed(chunk);
        }
    }

    /// Finishes the verification, after the whole body has arrived.
    pub(crate) fn finish(
        &mut self,
        scheme: &(impl Scheme + ?Sized),
        head: &Head<'_>,
        body: &[u8],
    ) -> Result<Verified, Rejection> {
        match self {
            Self::Incremental(check) => check.finish(body),
            Self::AwaitingBody(secrets) => {
                let mut first: Option<Verified> = None;
                for proof in scheme.read_body(head, body)? {
                    proof.check()?;
                    // The scheme has seen the body and still does not say what is signed.
                    if proof.is_in_body() {
                        return Err(RejectionKind::UnsupportedSignature.into());
                    }
                    let mut check = ProofCheck::start(proof, secrets, head.now())?;
                    check.feed(body);
                    let verified = check.finish(body)?;
                    let coverage = verified.coverage;
                    let first = first.get_or_insert(verified);
                    // All proofs hold, so one that covers the body is enough.
                    first.coverage = first.coverage.max(coverage);
                }
                first.ok_or(RejectionKind::MissingSignature.into())
            }
        }
    }
}

/// The check of one proof: one MAC per active secret.
pub(crate) struct ProofCheck {
    proof: Proof,
    /// On the heap, though there is mostly one: MACs are large, and stay where they were created.
    keys: Vec<(Arc<Prepared>, Option<Mac>)>,
    alternative: Option<Box<ProofCheck>>,
}

impl ProofCheck {
    fn start(mut proof: Proof, secrets: &SecretSet, now: SystemTime) -> Result<Self, Rejection> {
        let alternative =
            proof.take_alternative().map(|other| Self::start(*other, secrets, now).map(Box::new)).transpose()?;
        let mut keys = Vec::with_capacity(1);
        for secret in secrets.prepared(now) {
            keys.push((secret.clone(), secret.key.start()));
        }
        if keys.is_empty() {
            return Err(RejectionKind::NoActiveSecret.into());
        }
        let [before, ..] = proof.message(&[]);
        keys.iter_mut().filter_map(|(_, mac)| mac.as_mut()).for_each(|mac| mac.feed(before));
        Ok(Self { proof, keys, alternative })
    }

    fn feed(&mut self, chunk: &[u8]) {
        if self.proof.covers_body() {
            self.keys.iter_mut().filter_map(|(_, mac)| mac.as_mut()).for_each(|mac| mac.feed(chunk));
        }
        if let Some(alternative) = &mut self.alternative {
            alternative.feed(chunk);
        }
    }

    /// Compares every signature of the proof with every key's MAC, without an early exit: the time does not reveal which
    /// of them matched. An alternative is only checked if the proof before it does not hold. The time may thus tell
    /// which alternative matched, and the sender knows that.
    fn finish(&mut self, body: &[u8]) -> Result<Verified, Rejection> {
        let mut found = None;
        for (secret, mac) in self.keys.drain(..) {
            // The sender knows which secret it signed with. Which signature matched, and where others differ, stays
            // hidden.
            if bool::from(matches(&self.proof, &secret.key, mac, body)) && found.is_none() {
                found = Some(secret);
            }
        }
        match (found, &mut self.alternative) {
            (Some(secret), _) => Ok(Verified::new(secret, &mut self.proof)),
            (None, Some(alternative)) => alternative.finish(body),
            (None, None) => Err(RejectionKind::SignatureMismatch.into()),
        }
    }
}

/// Whether one of the proof's signatures matches this key.
fn matches(proof: &Proof, key: &Key, mac: Option<Mac>, body: &[u8]) -> Choice {
    let message = proof.message(body);
    let computed = mac.map(|mut mac| {
        mac.feed(message[2]);
        mac.finish()
    });
    let own = computed.as_ref().or(key.token_digest());
    proof.signatures().fold(Choice::from(0), |matched, signature| {
        matched
            | match (signature, own) {
                (Signature::Tag(algorithm, tag), Some(own)) => {
                    are_equal(tag, own) & Choice::from(u8::from(*algorithm == key.algorithm()))
                }
                _ => Choice::from(u8::from(key.verifies(signature, &message))),
            }
    })
}

/// Compares in constant time, by words, since `subtle` would compare slices byte by byte.
fn are_equal(one: &Tag, other: &Tag) -> Choice {
    let (one, _) = one.as_chunks();
    let (other, _) = other.as_chunks();
    let words = one.iter().zip(other).map(|(one, other)| (u64::from_ne_bytes(*one), u64::from_ne_bytes(*other)));
    words.fold(Choice::from(1), |equal, (one, other)| equal & one.ct_eq(&other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_equal_if_every_bit_is() {
        let tag = std::array::from_fn(|at| at as u8);
        assert!(bool::from(are_equal(&tag, &tag.clone())));
        for bit in 0..256 {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!bool::from(are_equal(&tag, &other)), "bit {bit}");
        }
    }
}
