//! Bytes that are few as a rule.

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
    /// Adds `more` at the end.
    pub(super) fn push(&mut self, more: &[u8]) {
        match self {
            Self::Heap(bytes) => bytes.extend_from_slice(more),
            Self::Inline { bytes, length } => {
                let end = usize::from(*length);
                match bytes.get_mut(end..end + more.len()) {
                    Some(room) => {
                        room.copy_from_slice(more);
                        *length += more.len() as u8;
                    }
                    None => *self = Self::Heap([&bytes[..end], more].concat()),
                }
            }
        }
    }
}

impl Default for Short {
    fn default() -> Self {
        Self::Inline { bytes: [0; INLINE], length: 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_bytes_comes_back() {
        for length in [0, 1, INLINE - 1, INLINE, INLINE + 1, 1_000] {
            let bytes: Vec<u8> = (0..length).map(|n| n as u8).collect();
            let (head, tail) = bytes.split_at(length / 2);
            let mut short = Short::default();
            short.push(head);
            short.push(tail);
            assert_eq!(*short, bytes);
        }
    }
}
