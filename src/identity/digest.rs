use sha2::digest::Output;
use sha2::{Digest, Sha256};

/// The SHA-256 of a type and a body. The type's length goes first, so that none of its bytes can be taken for the body's; an
/// absent type is the empty one.
pub(crate) fn typed_digest(event_type: Option<&str>, body: &[u8]) -> Output<Sha256> {
    let event_type = event_type.unwrap_or_default();
    let length = (event_type.len() as u64).to_be_bytes();
    Sha256::new().chain_update(length).chain_update(event_type).chain_update(body).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_byte_of_the_type_passes_for_one_of_the_body() {
        assert_ne!(typed_digest(Some("ab"), b"c"), typed_digest(Some("a"), b"bc"));
        assert_ne!(typed_digest(Some("a"), b""), typed_digest(None, b"a"));
        assert_ne!(typed_digest(None, b""), Sha256::digest(b""));
        assert_eq!(typed_digest(None, b"x"), typed_digest(Some(""), b"x"));
    }
}
