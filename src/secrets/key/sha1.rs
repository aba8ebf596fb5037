//! HMAC-SHA1, where the feature is on.

#[cfg(not(feature = "sha1"))]
pub(crate) use self::absent::HmacSha1;
#[cfg(feature = "sha1")]
pub(crate) use self::present::HmacSha1;

#[cfg(feature = "sha1")]
mod present {
    use hmac::digest::KeyInit;
    use hmac::{Hmac, Mac as _};
    use sha1::Sha1;

    use super::super::Tag;
    use crate::error::ConfigError;

    #[derive(Clone)]
    pub(crate) struct HmacSha1(Hmac<Sha1>);

    impl HmacSha1 {
        pub(crate) fn new(bytes: &[u8]) -> Result<Self, ConfigError> {
            Hmac::new_from_slice(bytes).map(Self).map_err(|_| ConfigError::secret("the secret cannot be a key"))
        }

        pub(crate) fn feed(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }

        pub(crate) fn finish(self) -> Tag {
            let mut tag = Tag::default();
            tag[..20].copy_from_slice(&self.0.finalize().into_bytes());
            tag
        }
    }
}

#[cfg(not(feature = "sha1"))]
mod absent {
    use super::super::Tag;
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

        pub(crate) fn finish(self) -> Tag {
            match self {}
        }
    }
}
