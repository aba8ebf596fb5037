//! Skips runs of alike bytes a word at a time.

#[inline(never)]
pub(super) fn skip_whitespace(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\n' | b'\r' | b'\t', rest @ ..] = bytes {
        bytes = skip_run(rest, not_space);
    }
    bytes
}

/// Skips to the first byte that is not part of a run, eight at a time. In the word that `stops` makes of eight bytes,
/// first byte lowest, the lowest bit set must lie in that byte. NUL must be part of no run.
#[inline(always)]
pub(super) fn skip_run(mut bytes: &[u8], stops: impl Fn(u64) -> u64) -> &[u8] {
    while let Some((word, rest)) = bytes.split_first_chunk() {
        let stop = stops(u64::from_le_bytes(*word));
        if stop != 0 {
            return &bytes[stop.trailing_zeros() as usize / 8..];
        }
        bytes = rest;
    }
    skip_last_run(bytes, stops)
}

#[cold]
#[inline(never)]
fn skip_last_run(bytes: &[u8], stops: impl Fn(u64) -> u64) -> &[u8] {
    let padded = bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    &bytes[stops(padded).trailing_zeros() as usize / 8..]
}

/// Every byte of a word set to `byte`.
const fn all(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

#[inline(always)]
fn not_space(word: u64) -> u64 {
    word ^ all(b' ')
}

/// Stops at a quote, a backslash and a control character.
#[inline(always)]
pub(super) fn not_plain(word: u64) -> u64 {
    // Flipping bit 1 swaps the quote with the space, right above the control characters: one subtraction finds both.
    // What it borrows can only mark bytes above a true stop falsely.
    let quote_or_control = (word ^ all(2)).wrapping_sub(all(0x21));
    let backslash = (word ^ all(b'\\')).wrapping_sub(all(1));
    (quote_or_control | backslash) & !word & all(0x80)
}
