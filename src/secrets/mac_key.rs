use std::fmt;

use hmac::digest::KeyInit;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::error::{ConfigError, ConfigErrorKind};

/// Key material, ready to compute with: the MAC is keyed once, and cloned for every delivery.
///
/// A scheme makes it from the text of a [`Secret`](super::Secret), so that how a secret is decoded is part of the
/// scheme and never guessed. It never prints, and its state is overwritten when it is dropped.
#[derive(Clone)]
pub struct MacKey(Hmac<Sha256>);

impl MacKey {
    /// HMAC-SHA256 under these bytes.
    ///
    /// # Errors
    /// When there are none: anyone could sign.
    pub fn hmac_sha256(bytes: &[u8]) -> Result<Self, ConfigError> {
        let refused = || ConfigError::new(ConfigErrorKind::Secret, "the secret decodes to no bytes at all");
        if bytes.is_empty() {
            return Err(refused());
        }
        Hmac::new_from_slice(bytes).map(Self).map_err(|_| refused())
    }

    /// The tag over `parts`, one after the other.
    #[must_use]
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        let mut mac = self.start();
        for part in parts {
            mac.feed(part);
        }
        mac.finish()
    }

    pub(crate) fn start(&self) -> Mac {
        Mac(self.0.clone())
    }
}

impl fmt::Debug for MacKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MacKey(..)")
    }
}

/// One computation under a [`MacKey`], fed as the body arrives.
pub(crate) struct Mac(Hmac<Sha256>);

impl Mac {
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> [u8; 32] {
        self.0.finalize().into_bytes().into()
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
        assert!(MacKey::hmac_sha256(b"").is_err());
    }
}
