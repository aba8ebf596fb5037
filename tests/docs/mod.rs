//! The documents say what the crate says, and name what is in the source.

mod observability;
mod readme;
mod sources;
