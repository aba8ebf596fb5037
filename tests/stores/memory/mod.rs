//! The memory store.

mod claims;
mod fixture;
mod inbox;
