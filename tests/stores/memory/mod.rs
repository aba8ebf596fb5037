//! The memory store.

pub(super) mod claims;
mod fixture;
mod inbox;
