use std::sync::Arc;
use std::time::SystemTime;

use subtle::{Choice, ConstantTimeEq};

use super::proof::TAG;
use super::{Head, Proof, Scheme};
use crate::rejection::{Rejection, RejectionKind};
use crate::secrets::{Found, Mac, SecretSet};

/// What a successful verification tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Verified {
    /// The label of the secret that matched.
    pub secret_label: Arc<str>,
    /// When the sender signed, where the scheme says.
    pub signed_at: Option<SystemTime>,
}

/// Verifies a delivery whose body is already there, for use without the layer.
///
/// # Errors
/// The [`Rejection`] that the layer would have refused it with.
pub async fn verify(scheme: &(impl Scheme + ?Sized), head: &Head<'_>, body: &[u8]) -> Result<Verified, Rejection> {
    let proof = scheme.read(head)?;
    proof.check()?;
    let mut verifying = match scheme.secrets().begin(head)? {
        Found::Now(set) => Verifying::start(proof, &set, head.now())?,
        Found::Later(lookup) => Verifying::start(proof, &lookup.await?.set, head.now())?,
    };
    verifying.feed(body);
    verifying.finish()
}

/// A verification that is fed with the body while it arrives: one MAC per active secret.
pub(crate) struct Verifying {
    proof: Proof,
    /// With their secrets' labels. On the heap, though mostly one: they are large, and stay where they were made.
    macs: Vec<(Arc<str>, Mac)>,
}

impl Verifying {
    pub(crate) fn start(proof: Proof, secrets: &SecretSet, now: SystemTime) -> Result<Self, Rejection> {
        let mut macs = Vec::with_capacity(1);
        for (label, key) in secrets.active(now) {
            macs.push((label.clone(), key.start()));
        }
        if macs.is_empty() {
            return Err(RejectionKind::NoActiveSecret.into());
        }
        macs.iter_mut().for_each(|(_, mac)| mac.feed(proof.before()));
        Ok(Self { proof, macs })
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) {
        self.macs.iter_mut().for_each(|(_, mac)| mac.feed(chunk));
    }

    /// Compares every signature with every tag. No early exit: how long it takes does not tell which of them matched.
    pub(crate) fn finish(&mut self) -> Result<Verified, Rejection> {
        let mut found = None;
        for (label, mut mac) in self.macs.drain(..) {
            mac.feed(self.proof.after());
            let tag = mac.finish();
            let compared = self.proof.signatures().map(|signature| are_equal(signature, &tag));
            let matched = compared.fold(Choice::from(0), |matched, equal| matched | equal);
            // Which secret it was is known to whoever signed; which signature, and where they differ, is not told.
            if bool::from(matched) && found.is_none() {
                found = Some(label);
            }
        }
        let secret_label = found.ok_or(RejectionKind::SignatureMismatch)?;
        Ok(Verified { secret_label, signed_at: self.proof.signed_at() })
    }
}

/// In constant time. By words, because `subtle` would go through slices byte by byte.
fn are_equal(one: &[u8; TAG], other: &[u8; TAG]) -> Choice {
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
        for bit in 0..8 * TAG {
            let mut other = tag;
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!bool::from(are_equal(&tag, &other)), "bit {bit}");
        }
    }
}
