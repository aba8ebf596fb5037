use hmac::digest::Digest;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use super::sha1::HmacSha1;

/// What a MAC comes to. Shorter ones end in zeros.
pub(crate) type Tag = [u8; 32];

/// One computation under a [`Key`](super::Key), fed as the body arrives.
#[derive(Clone)]
pub(crate) enum Mac {
    HmacSha256(Hmac<Sha256>),
    HmacSha1(HmacSha1),
    /// Has eaten the secret.
    KeyedSha256(Sha256),
}

impl Mac {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match self {
            Self::HmacSha256(mac) => mac.update(bytes),
            Self::HmacSha1(mac) => mac.feed(bytes),
            Self::KeyedSha256(hash) => Digest::update(hash, bytes),
        }
    }

    pub(crate) fn finish(self) -> Tag {
        match self {
            Self::HmacSha256(mac) => mac.finalize().into_bytes().into(),
            Self::HmacSha1(mac) => mac.finish(),
            Self::KeyedSha256(hash) => hash.finalize().into(),
        }
    }
}
