//! The store as an inbox.

#[path = "inbox/conformance.rs"]
mod conformance;
