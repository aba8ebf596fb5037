use std::fmt;

use crate::random;

/// Proves who holds a claim: 128 bits made by the claimant, new for every delivery and unlike those of any other
/// process.
///
/// It is the fence: `renew`, `complete` and `release` do nothing under any other token. It is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClaimToken([u8; 16]);

impl ClaimToken {
    /// A new token.
    #[must_use]
    pub fn random() -> Self {
        Self(random::bits().to_be_bytes())
    }

    /// The token that a store wrote as these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes for a store to write.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimToken({self})")
    }
}
