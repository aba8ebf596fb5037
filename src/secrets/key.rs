use std::fmt;

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac as _};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::optional::{Ed25519Key, HmacSha1, P256Key};
use crate::error::ConfigError;

/// The algorithm that signatures are computed with. The scheme names it; nothing in a request ever does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-1, which is still sound as a MAC. Needs the feature `sha1`.
    HmacSha1,
    /// SHA-256 over the secret and then the message. This is no HMAC, and weaker: an attacker who captured one delivery
    /// can append to its message, so a [`Template`](crate::scheme::Template) accepts only JSON with it. HubSpot's older
    /// versions use it.
    KeyedSha256,
    /// The secret itself, sent along. It authenticates the sender and no byte of the message.
    Token,
    /// Ed25519. Needs the feature `ed25519`.
    Ed25519,
    /// ECDSA over P-256 with SHA-256. A signature is DER, or its two numbers of 32 bytes. Needs the feature `p256`.
    EcdsaP256,
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacSha256 => "HMAC-SHA256",
            Self::HmacSha1 => "HMAC-SHA1",
            Self::KeyedSha256 => "SHA-256",
            Self::Token => "token",
            Self::Ed25519 => "Ed25519",
            Self::EcdsaP256 => "ECDSA P-256",
        })
    }
}

/// Key material, ready to compute with. A MAC is keyed once, and cloned for every delivery.
///
/// A scheme makes it from the text of a [`Secret`](super::Secret), so that how a secret is decoded is part of
/// the scheme and never guessed. A key never prints, and its state is overwritten when it is dropped.
#[derive(Clone)]
pub struct Key {
    algorithm: Algorithm,
    material: Material,
}

#[derive(Clone)]
enum Material {
    Mac(Mac),
    Token { digest: Tag, token: Zeroizing<Vec<u8>> },
    Ed25519(Box<Ed25519Key>),
    P256(Box<P256Key>),
}

impl Key {
    /// Creates a key for `algorithm` from `bytes`.
    ///
    /// Ed25519 takes a public key of 32 bytes, or a private key of 64 bytes: the seed and its public key. ECDSA takes a
    /// public key as SubjectPublicKeyInfo or as a point in SEC 1, or a private key as PKCS #8. A private key also
    /// signs, for senders and tests.
    ///
    /// # Errors
    /// If `bytes` is empty or is no key for `algorithm`, or if the algorithm's feature is off.
    pub fn new(algorithm: Algorithm, bytes: &[u8]) -> Result<Self, ConfigError> {
        if bytes.is_empty() {
            return Err(ConfigError::secret("the secret decodes to an empty key"));
        }
        let material = match algorithm {
            Algorithm::HmacSha256 => Material::Mac(Mac::HmacSha256(
                Hmac::new_from_slice(bytes).map_err(|_| ConfigError::secret("the secret is not a valid key"))?,
            )),
            Algorithm::HmacSha1 => Material::Mac(Mac::HmacSha1(HmacSha1::new(bytes)?)),
            Algorithm::KeyedSha256 => Material::Mac(Mac::KeyedSha256(Sha256::new_with_prefix(bytes))),
            Algorithm::Token => {
                Material::Token { digest: Sha256::digest(bytes).into(), token: Zeroizing::new(bytes.to_vec()) }
            }
            Algorithm::Ed25519 => Material::Ed25519(Ed25519Key::new(bytes)?),
            Algorithm::EcdsaP256 => Material::P256(P256Key::new(bytes)?),
        };
        Ok(Self { algorithm, material })
    }

    /// Creates a key for HMAC-SHA256 from `bytes`.
    ///
    /// # Errors
    /// If `bytes` is empty: anyone could sign.
    pub fn hmac_sha256(bytes: &[u8]) -> Result<Self, ConfigError> {
        Self::new(Algorithm::HmacSha256, bytes)
    }

    /// The algorithm of this key.
    #[must_use]
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Signs `message`, which is given in parts.
    ///
    /// # Errors
    /// If this is a public key, which only verifies.
    pub fn sign(&self, message: &[&[u8]]) -> Result<Vec<u8>, ConfigError> {
        let public = || {
            ConfigError::secret("a public key cannot sign: build the sender's scheme with the private key of the pair")
        };
        match &self.material {
            Material::Mac(mac) => {
                let mut mac = mac.clone();
                message.iter().for_each(|part| mac.feed(part));
                let length = if self.algorithm == Algorithm::HmacSha1 { 20 } else { 32 };
                Ok(mac.finish()[..length].to_vec())
            }
            Material::Token { token, .. } => Ok(token.to_vec()),
            Material::Ed25519(key) => key.sign(message).ok_or_else(public),
            Material::P256(key) => key.sign(message).ok_or_else(public),
        }
    }

    /// Whether this key can sign, and not only verify.
    #[must_use]
    pub fn can_sign(&self) -> bool {
        self.sign(&[]).is_ok()
    }

    /// Starts a MAC that is fed with the message. `None` if the algorithm computes no MAC.
    pub(crate) fn start(&self) -> Option<Mac> {
        match &self.material {
            Material::Mac(mac) => Some(mac.clone()),
            _ => None,
        }
    }

    /// The digest of the token, if this key is a token. It does not depend on the message.
    pub(crate) fn token_digest(&self) -> Option<&Tag> {
        match &self.material {
            Material::Token { digest, .. } => Some(digest),
            _ => None,
        }
    }

    /// Whether `signature` is valid for the whole message under this public key. The values compared here are not
    /// secret.
    pub(crate) fn verifies(&self, signature: &Signature, message: &[&[u8]]) -> bool {
        match (&self.material, signature) {
            (Material::Ed25519(key), Signature::Asymmetric(Algorithm::Ed25519, bytes)) => key.verifies(bytes, message),
            (Material::P256(key), Signature::Asymmetric(Algorithm::EcdsaP256, bytes)) => key.verifies(bytes, message),
            _ => false,
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({}, ..)", self.algorithm)
    }
}

/// The result of a MAC. Shorter results are padded with zeros.
pub(crate) type Tag = [u8; 32];

/// One MAC computation under a [`Key`], fed as the body arrives.
#[derive(Clone)]
pub(crate) enum Mac {
    HmacSha256(Hmac<Sha256>),
    HmacSha1(HmacSha1),
    /// Already fed with the secret.
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
            Self::HmacSha1(mac) => padded(mac.finish()),
            Self::KeyedSha256(hash) => hash.finalize().into(),
        }
    }
}

/// Pads an HMAC-SHA1 result to the length of a [`Tag`].
fn padded(short: [u8; 20]) -> Tag {
    let mut tag = Tag::default();
    tag[..20].copy_from_slice(&short);
    tag
}

/// A signature from a delivery, in the form in which it is compared.
#[derive(Clone, Copy)]
pub(crate) enum Signature {
    /// A MAC, or the digest of a token. Equal tokens have equal digests, and a digest does not reveal the token's
    /// length.
    Tag(Algorithm, Tag),
    /// A signature made with a private key.
    Asymmetric(Algorithm, [u8; 64]),
}

impl Signature {
    /// Parses the bytes of a signature. `None` if `algorithm` has no such signatures.
    pub(crate) fn new(algorithm: Algorithm, bytes: &[u8]) -> Option<Self> {
        match algorithm {
            Algorithm::HmacSha256 | Algorithm::KeyedSha256 => {
                bytes.try_into().ok().map(|tag| Self::Tag(algorithm, tag))
            }
            Algorithm::HmacSha1 => bytes.try_into().ok().map(|tag| Self::Tag(algorithm, padded(tag))),
            Algorithm::Token => Some(Self::Tag(algorithm, Sha256::digest(bytes).into())),
            Algorithm::Ed25519 => bytes.try_into().ok().map(|bytes| Self::Asymmetric(algorithm, bytes)),
            Algorithm::EcdsaP256 => P256Key::signature(bytes).map(|bytes| Self::Asymmetric(algorithm, bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use zeroize::ZeroizeOnDrop;

    use super::*;

    #[test]
    fn keyed_state_is_overwritten_when_dropped() {
        fn overwritten<T: ZeroizeOnDrop>() {}
        overwritten::<sha2::block_api::Sha256VarCore>();
    }

    #[test]
    fn no_bytes_are_no_key() {
        for algorithm in [Algorithm::HmacSha256, Algorithm::KeyedSha256, Algorithm::Token, Algorithm::Ed25519] {
            assert!(Key::new(algorithm, b"").is_err());
        }
    }

    #[cfg(feature = "ed25519")]
    #[test]
    fn weak_and_torn_ed25519_keys_are_refused() {
        let identity = std::array::from_fn::<u8, 32, _>(|at| u8::from(at == 0));
        assert!(Key::new(Algorithm::Ed25519, &identity).is_err());
        assert!(Key::new(Algorithm::Ed25519, &[7; 31]).is_err());
        assert!(Key::new(Algorithm::Ed25519, &[7; 64]).is_err(), "the second half is not the seed's public key");
    }
}
