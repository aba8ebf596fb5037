//! ECDSA over P-256, where the feature is on.

#[cfg(not(feature = "p256"))]
pub(crate) use self::absent::P256Key;
#[cfg(feature = "p256")]
pub(crate) use self::present::P256Key;

#[cfg(feature = "p256")]
mod present {
    use p256::ecdsa::signature::{MultipartSigner, MultipartVerifier};
    use p256::ecdsa::{Signature, SigningKey, VerifyingKey};
    use p256::pkcs8::{DecodePrivateKey, DecodePublicKey};

    use crate::error::ConfigError;

    /// A public key, and the private one where this is the sender.
    #[derive(Clone)]
    pub(crate) struct P256Key {
        public: VerifyingKey,
        private: Option<SigningKey>,
    }

    impl P256Key {
        /// Of a public key (SubjectPublicKeyInfo, or a point in SEC 1) or a private one (PKCS #8).
        pub(crate) fn new(bytes: &[u8]) -> Result<Box<Self>, ConfigError> {
            let private = SigningKey::from_pkcs8_der(bytes).ok();
            let public = match &private {
                Some(private) => *private.verifying_key(),
                None => VerifyingKey::from_public_key_der(bytes)
                    .ok()
                    .or_else(|| VerifyingKey::from_sec1_bytes(bytes).ok())
                    .ok_or_else(|| ConfigError::secret("this is no public key for ECDSA over P-256"))?,
            };
            Ok(Box::new(Self { public, private }))
        }

        /// The two numbers of a signature, in DER or side by side; `None` for what is none.
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
mod absent {
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
