use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::general_purpose::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::error::ConfigError;
use crate::secrets::{Algorithm, Signature};

/// How bytes are written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// The bytes themselves.
    Text,
    /// Hex digits, upper or lower case.
    Hex,
    /// Base64 with `+` and `/`, padded.
    Base64,
}

/// Secrets are copied by hand: unpadded ones exist, and Python's decoder ignores the last bits, so people do too.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// The longest decoded signature that is accepted: an ECDSA signature in DER has at most 72 bytes.
const MAX_SIGNATURE: usize = 96;

impl Encoding {
    /// Decodes a signature strictly: each signature has one spelling, except for the case of hex digits.
    pub(super) fn signature(self, algorithm: Algorithm, text: &[u8]) -> Option<Signature> {
        match (self, algorithm) {
            // Nearly every delivery.
            (Self::Hex, Algorithm::HmacSha256) => decode_hex(text).map(|tag| Signature::Tag(algorithm, tag)),
            (Self::Hex, _) => {
                let mut bytes = [0; MAX_SIGNATURE];
                let bytes = bytes.get_mut(..text.len() / 2)?;
                hex::decode_to_slice(text, bytes).ok()?;
                Signature::new(algorithm, bytes)
            }
            (Self::Base64, _) => {
                let mut bytes = [0; MAX_SIGNATURE];
                let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
                Signature::new(algorithm, &bytes[..length])
            }
            (Self::Text, _) => Signature::new(algorithm, text),
        }
    }

    /// The length of a signature's text, if all signatures of `algorithm` have the same.
    pub(super) fn length(self, algorithm: Algorithm) -> Option<usize> {
        let bytes = match algorithm {
            Algorithm::HmacSha256 | Algorithm::KeyedSha256 => 32,
            Algorithm::HmacSha1 => 20,
            Algorithm::Ed25519 => 64,
            Algorithm::Token | Algorithm::EcdsaP256 => return None,
        };
        match self {
            Self::Text => None,
            Self::Hex => Some(2 * bytes),
            Self::Base64 => Some(bytes.div_ceil(3) * 4),
        }
    }

    /// Decodes the key bytes from a secret's text.
    pub(super) fn secret(self, text: &str) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        let bytes = match self {
            Self::Text => Ok(text.as_bytes().to_vec()),
            Self::Hex => {
                hex::decode(text).map_err(|_| "this secret must be hex digits: copy it as the provider shows it")
            }
            Self::Base64 => {
                LENIENT.decode(text).map_err(|_| "this secret must be base64: copy it as the provider shows it")
            }
        };
        bytes.map(Zeroizing::new).map_err(ConfigError::secret)
    }

    /// Encodes `bytes`.
    pub(super) fn write(self, bytes: &[u8]) -> String {
        match self {
            Self::Text => String::from_utf8_lossy(bytes).into_owned(),
            Self::Hex => hex::encode(bytes),
            Self::Base64 => STANDARD.encode(bytes),
        }
    }
}

/// Decodes exactly `2 * N` hex digits. In one pass, since this runs on every delivery.
pub(super) fn decode_hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok()?;
    let high = pairs.map(|[digit, _]| hex_value(digit));
    let low = pairs.map(|[_, digit]| hex_value(digit));
    let invalid = high.iter().chain(&low).fold(0, |all, value| all | value) > 15;
    let mut bytes = high;
    for (byte, low) in bytes.iter_mut().zip(low) {
        *byte = *byte << 4 | low;
    }
    (!invalid).then_some(bytes)
}

/// The value of a hex digit; above 15 for any other byte. Uses arithmetic instead of a table, so that the compiler can
/// vectorise it.
#[inline(always)]
fn hex_value(digit: u8) -> u8 {
    let (number, letter) = (digit.wrapping_sub(b'0'), (digit | 0x20).wrapping_sub(b'a'));
    if number < 10 {
        number
    } else if letter < 6 {
        letter + 10
    } else {
        u8::MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_signatures_have_one_spelling() {
        let right = STANDARD.encode([7; 32]);
        let accepted = |text: &str| Encoding::Base64.signature(Algorithm::HmacSha256, text.as_bytes()).is_some();
        assert!(accepted(&right));
        let unpadded = right.trim_end_matches('=');
        let other_bits = format!("{}d=", &right[..42]);
        assert_ne!(other_bits, right);
        for text in [unpadded, &other_bits, &right.replace('=', "=="), &format!("{right} "), &format!(" {right}"), ""] {
            assert!(!accepted(text), "{text:?}");
        }
    }

    #[test]
    fn signatures_of_another_length_are_none() {
        for length in [0, 19, 20, 31, 33, 64, 200] {
            let bytes = vec![7; length];
            for encoding in [Encoding::Hex, Encoding::Base64, Encoding::Text] {
                let text = match encoding {
                    Encoding::Text => bytes.clone(),
                    _ => encoding.write(&bytes).into_bytes(),
                };
                assert!(encoding.signature(Algorithm::HmacSha256, &text).is_none(), "{encoding:?} of {length}");
                assert_eq!(encoding.signature(Algorithm::HmacSha1, &text).is_some(), length == 20, "{encoding:?}");
            }
        }
    }

    #[test]
    fn secrets_may_lack_their_padding() {
        for text in ["AAECAw==", "AAECAw=", "AAECAw", "AAECAx"] {
            assert_eq!(Encoding::Base64.secret(text).expect("a secret").as_slice(), [0, 1, 2, 3], "{text}");
        }
        assert!(Encoding::Base64.secret("not base64").is_err());
        assert!(Encoding::Hex.secret("abc").is_err());
    }

    #[test]
    fn decodes_what_the_hex_crate_decodes() {
        for text in ["00ff", "FFaa", "0g00", "+f00", "00", "00ff0", "00ff00", "é0", "", "0xff"] {
            let mut expected = [0; 2];
            let accepted = hex::decode_to_slice(text, &mut expected).is_ok();
            assert_eq!(decode_hex::<2>(text.as_bytes()), accepted.then_some(expected), "{text:?}");
        }
        for byte in 0..=u8::MAX {
            let accepted = byte.is_ascii_hexdigit();
            assert_eq!(decode_hex::<1>(&[b'0', byte]).is_some() && decode_hex::<1>(&[byte, b'0']).is_some(), accepted);
        }
    }
}
