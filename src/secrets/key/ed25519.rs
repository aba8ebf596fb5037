//! Ed25519, where the feature is on.

#[cfg(not(feature = "ed25519"))]
pub(crate) use self::absent::Ed25519Key;
#[cfg(feature = "ed25519")]
pub(crate) use self::present::Ed25519Key;

#[cfg(feature = "ed25519")]
mod present {
    use ed25519_dalek::ed25519::signature::{MultipartSigner, MultipartVerifier};
    use ed25519_dalek::{Signature, SigningKey, VerifyingKey};

    use crate::error::ConfigError;

    /// A public key, and the private one where this is the sender.
    #[derive(Clone)]
    pub(crate) struct Ed25519Key {
        public: VerifyingKey,
        private: Option<SigningKey>,
    }

    impl Ed25519Key {
        /// Of the 32 bytes of a public key, or the 64 of a private one: the seed and its public key.
        pub(crate) fn new(bytes: &[u8]) -> Result<Box<Self>, ConfigError> {
            let refused = || ConfigError::secret("an Ed25519 public key has 32 bytes, and is a point of the curve");
            let private = match bytes.try_into() {
                Ok(pair) => Some(SigningKey::from_keypair_bytes(pair).map_err(|_| {
                    ConfigError::secret("an Ed25519 private key is its seed, followed by its public key")
                })?),
                Err(_) => None,
            };
            let public = match &private {
                Some(private) => private.verifying_key(),
                None => VerifyingKey::from_bytes(bytes.try_into().map_err(|_| refused())?).map_err(|_| refused())?,
            };
            if public.is_weak() {
                return Err(ConfigError::secret("this Ed25519 key is weak: anyone could sign under it"));
            }
            Ok(Box::new(Self { public, private }))
        }

        pub(crate) fn verifies(&self, signature: &[u8; 64], message: &[&[u8]]) -> bool {
            self.public.multipart_verify(message, &Signature::from_bytes(signature)).is_ok()
        }

        pub(crate) fn sign(&self, message: &[&[u8]]) -> Option<Vec<u8>> {
            let signature = self.private.as_ref()?.try_multipart_sign(message).ok()?;
            Some(signature.to_vec())
        }
    }
}

#[cfg(not(feature = "ed25519"))]
mod absent {
    use crate::error::ConfigError;

    #[derive(Clone)]
    pub(crate) enum Ed25519Key {}

    impl Ed25519Key {
        pub(crate) fn new(_: &[u8]) -> Result<Box<Self>, ConfigError> {
            Err(ConfigError::feature("ed25519"))
        }

        pub(crate) fn verifies(&self, _: &[u8; 64], _: &[&[u8]]) -> bool {
            match *self {}
        }

        pub(crate) fn sign(&self, _: &[&[u8]]) -> Option<Vec<u8>> {
            match *self {}
        }
    }
}
