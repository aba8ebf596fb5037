//! Hex digits of exactly the right number, in one pass: this runs on every delivery.

/// The bytes that `text` spells, if it is `2 * N` hex digits and nothing else.
pub(super) fn decode<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let pairs: &[[u8; 2]; N] = pairs.try_into().ok()?;
    let high = pairs.map(|[digit, _]| value(digit));
    let low = pairs.map(|[_, digit]| value(digit));
    let invalid = high.iter().chain(&low).fold(0, |all, value| all | value) > 15;
    let mut bytes = high;
    for (byte, low) in bytes.iter_mut().zip(low) {
        *byte = *byte << 4 | low;
    }
    (!invalid).then_some(bytes)
}

/// What a byte is worth as a hex digit; above 15 it is none. Arithmetic and no table, so that many are worked out at once.
#[inline(always)]
fn value(digit: u8) -> u8 {
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
    fn decodes_what_the_hex_crate_decodes() {
        for text in ["00ff", "FFaa", "0g00", "+f00", "00", "00ff0", "00ff00", "é0", "", "0xff"] {
            let mut expected = [0; 2];
            let accepted = ::hex::decode_to_slice(text, &mut expected).is_ok();
            assert_eq!(decode::<2>(text.as_bytes()), accepted.then_some(expected), "{text:?}");
        }
        for byte in 0..=u8::MAX {
            let accepted = byte.is_ascii_hexdigit();
            assert_eq!(decode::<1>(&[b'0', byte]).is_some() && decode::<1>(&[byte, b'0']).is_some(), accepted);
        }
    }
}
