//! Key material, of every algorithm that a scheme may name.

mod ed25519;
mod mac;
mod material;
mod p256;
mod sha1;
mod signature;

pub(crate) use self::mac::{Mac, Tag};
pub use self::material::Key;
pub(crate) use self::signature::Signature;
