use std::fmt;

/// What a signature is computed with. A scheme names it; nothing in a request ever does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-1, which is still sound as a MAC. Needs the feature `sha1`.
    HmacSha1,
    /// SHA-256 over the secret and then the message: no HMAC, and weaker. Whoever captured one delivery can append to its
    /// message, so a [`Template`](crate::scheme::Template) takes only JSON with it. HubSpot's older versions.
    KeyedSha256,
    /// The secret itself, sent along: it authenticates the sender and no byte of the message.
    Token,
    /// Ed25519. Needs the feature `ed25519`.
    Ed25519,
    /// ECDSA over P-256 with SHA-256, in DER, or its two numbers of 32 bytes. Needs the feature `p256`.
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
