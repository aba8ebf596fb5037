use sha2::{Digest, Sha256};

use super::Tag;
use super::p256::P256Key;
use crate::secrets::Algorithm;

/// A signature that a sender offers, in the form that it is compared in.
#[derive(Clone, Copy)]
pub(crate) enum Signature {
    /// A MAC, or the digest of a token: two of equal tokens are equal, and how long they are does not show.
    Tag(Algorithm, Tag),
    /// The signature of a private key.
    Asymmetric(Algorithm, [u8; 64]),
}

impl Signature {
    /// Of a signature's bytes; `None` when they cannot be one.
    pub(crate) fn new(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        match algorithm {
            Algorithm::HmacSha256 | Algorithm::KeyedSha256 => {
                bytes.try_into().ok().map(|tag| Self::Tag(algorithm, tag))
            }
            Algorithm::HmacSha1 => {
                let mut tag = Tag::default();
                let short: &[u8; 20] = bytes.try_into().ok()?;
                tag[..20].copy_from_slice(short);
                Some(Self::Tag(algorithm, tag))
            }
            Algorithm::Token => Some(Self::Tag(algorithm, Sha256::digest(bytes).into())),
            Algorithm::Ed25519 => bytes.try_into().ok().map(|bytes| Self::Asymmetric(algorithm, bytes)),
            Algorithm::EcdsaP256 => P256Key::signature(bytes).map(|bytes| Self::Asymmetric(algorithm, bytes)),
        }
    }
}
