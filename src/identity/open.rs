//! How deeply a JSON text nests, without a stack to allocate.

/// The arrays and objects that are open: one bit each, the innermost lowest, below a bit that marks the bottom.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Open(u128);

impl Open {
    pub(super) const NOTHING: Self = Self(1);

    /// `None` when 127 are open. `serde_json` stops there too: deeper bodies would only fail later, in the handler.
    #[inline(always)]
    pub(super) fn array(self) -> Option<Self> {
        (self.0.leading_zeros() > 0).then_some(Self(self.0 << 1))
    }

    #[inline(always)]
    pub(super) fn object(self) -> Option<Self> {
        self.array().map(|Self(bits)| Self(bits | 1))
    }

    #[inline(always)]
    pub(super) fn closed(self) -> Self {
        Self(self.0 >> 1)
    }

    #[inline(always)]
    pub(super) fn in_object(self) -> bool {
        self.0 & 1 == 1
    }

    /// The bracket that closes the innermost.
    #[inline(always)]
    pub(super) fn closing(self) -> u8 {
        if self.in_object() { b'}' } else { b']' }
    }
}
