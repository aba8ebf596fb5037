//! The documents say what the crate says, and name what is in the source.

#[path = "../../examples/support/mod.rs"]
mod examples;

mod readme;
mod sources;
