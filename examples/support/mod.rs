//! What the examples share.

#![allow(dead_code, reason = "every example uses a part of it")]

#[cfg(all(feature = "postgres", feature = "sqlite"))]
pub(crate) mod books;
pub(crate) mod captured;
pub(crate) mod console;
pub(crate) mod demo;
pub(crate) mod events;
pub(crate) mod listing;
pub(crate) mod paste;
pub(crate) mod schemes;
pub(crate) mod stores;
