//! Algorithms that need a Cargo feature. Without the feature, creating a key returns an error.

#[cfg(feature = "ed25519")]
pub(crate) use self::with_ed25519::Ed25519Key;
#[cfg(feature = "p256")]
pub(crate) use self::with_p256::P256Key;
#[cfg(feature = "sha1")]
pub(crate) use self::with_sha1::HmacSha1;
#[cfg(not(feature = "ed25519"))]
pub(crate) use self::without_ed25519::Ed25519Key;
#[cfg(not(feature = "p256"))]
pub(crate) use self::without_p256::P256Key;
#[cfg(not(feature = "sha1"))]
pub(crate) use self::without_sha1::HmacSha1;

#[cfg(feature = "sha1")]
mod with_sha1 {
    use hmac::digest::KeyInit;
    use hmac::{Hmac, Mac as _};
    use sha1::Sha1;

    use crate::error::ConfigError;

    #[derive(Clone)]
    pub(crate) struct HmacSha1(Hmac<Sha1>);

    impl HmacSha1 {
        pub(crate) fn new(bytes: &[u8]) -> Result<Self, ConfigError> {
            Hmac::new_from_slice(bytes).map(Self).map_err(|_| ConfigError::secret("the secret is not a valid key"))
        }

        pub(crate) fn feed(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        pub(crate) fn finish(self) -> [u8; 20] {
            self.0.finalize().into_bytes().into()
        }
    }
}

#[cfg(not(feature = "sha1"))]
mod without_sha1 {
    use crate::error::ConfigError;

    #[derive(Clone)]
    pub(crate) enum HmacSha1 {}

    impl HmacSha1 {
        pub(crate) fn new(_: &[u8]) -> Result<Self, ConfigError> {
            Err(ConfigError::feature("sha1"))
        }

        pub(crate) fn feed(&mut self, _: &[u8]) {
            match *self {}
        }

        pub(crate) fn finish(self) -> [u8; 20] {
            match self {}
        }
    }
}

#[cfg(feature = "ed25519")]
mod with_ed25519 {
    use ed25519_dalek::ed25519::signature::{MultipartSigner, MultipartVerifier};
    use ed25519_dalek::{Signature, SigningKey, VerifyingKey};

    use crate::error::ConfigError;

    /// A public key, and the private key if this is the sender.
    #[derive(Clone)]
    pub(crate) struct Ed25519Key {
        public: VerifyingKey,
        private: Option<SigningKey>,
    }

    impl Ed25519Key {
        /// Takes the 32 bytes of a public key, or the 64 bytes of a private key: the seed and its public key.
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
mod without_ed25519 {
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

#[cfg(feature = "p256")]
mod with_p256 {
    use p256::ecdsa::signature::{MultipartSigner, MultipartVerifier};
    use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
    use p256::pkcs8::{DecodePrivateKey, DecodePublicKey};

    use crate::error::ConfigError;

    /// A public key, and the private key if this is the sender.
    #[derive(Clone)]
    pub(crate) struct P256Key {
        public: VerifyingKey,
        private: Option<SigningKey>,
    }

    impl P256Key {
        /// Takes a public key (SubjectPublicKeyInfo, or a point in SEC 1) or a private key (PKCS #8).
        pub(crate) fn new(bytes: &[u8]) -> Result<Box<Self>, ConfigError> {
            let private = SigningKey::from_pkcs8_der(bytes).ok();
            let public = match &private {
                Some(private) => *private.verifying_key(),
                None => VerifyingKey::from_public_key_der(bytes)
                    .ok()
                    .or_else(|| VerifyingKey::from_sec1_bytes(bytes).ok())
                    .ok_or_else(|| ConfigError::secret("this is not a public key for ECDSA over P-256"))?,
            };
            Ok(Box::new(Self { public, private }))
        }

        /// Parses the two numbers of a signature, in DER or side by side. `None` if `bytes` is no signature.
        pub(crate) fn signature(bytes: &[u8]) -> Option<[u8; 64]> {
            let signature = Signature::from_slice(bytes).or_else(|_| Signature::from_der(bytes));
            signature.ok().map(|signature| signature.to_bytes().into())
        }

        pub(crate) fn verifies(&self, signature: &[u8; 64], message: &[&[u8]]) -> bool {
            Signature::from_slice(signature)
                .is_ok_and(|signature| self.public.multipart_verify(message, &signature).is_ok())
        }

        pub(crate) fn sign(&self, message: &[&[u8]]) -> Option<Vec<u8>> {
            let signature: Signature = self.private.as_ref()?.try_multipart_sign(message).ok()?;
            Some(signature.to_der().as_bytes().to_vec())
        }
    }
}

#[cfg(not(feature = "p256"))]
mod without_p256 {
    use crate::error::ConfigError;

    #[derive(Clone)]
    pub(crate) enum P256Key {}

    impl P256Key {
        pub(crate) fn new(_: &[u8]) -> Result<Box<Self>, ConfigError> {
            Err(ConfigError::feature("p256"))
        }

        pub(crate) fn signature(_: &[u8]) -> Option<[u8; 64]> {
            None
        }

        pub(crate) fn verifies(&self, _: &[u8; 64], _: &[&[u8]]) -> bool {
            match *self {}
        }

        pub(crate) fn sign(&self, _: &[&[u8]]) -> Option<Vec<u8>> {
            match *self {}
        }
    }
}
