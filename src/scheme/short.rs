//! Bytes that are few as a rule.

use std::fmt;
use std::ops::Deref;

/// How many bytes need no allocation: a timestamp and a dot are at most 13.
const INLINE: usize = 22;

/// A few bytes in place, or more of them on the heap.
#[derive(Clone)]
pub(super) enum Short {
    Inline { bytes: [u8; INLINE], length: u8 },
    Heap(Vec<u8>),
}

impl Short {
    /// All of `parts`, one after the other.
    pub(super) fn concat(parts: &[&[u8]]) -> Self {
        let mut bytes = [0; INLINE];
        let mut length = 0;
        for part in parts {
            let Some(room) = bytes.get_mut(length..length + part.len()) else { return Self::Heap(parts.concat()) };
            room.copy_from_slice(part);
            length += part.len();
        }
        Self::Inline { bytes, length: length as u8 }
    }
}

impl Default for Short {
    fn default() -> Self {
        Self::concat(&[])
    }
}

impl Deref for Short {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Inline { bytes, length } => &bytes[..usize::from(*length)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_bytes_comes_back() {
        for length in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1_000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let (head, tail) = bytes.split_at(length / 2);
            assert_eq!(*Short::concat(&[head, tail]), bytes);
        }
    }
}
