//! The examples, and what they print.

#[path = "../../examples/support/mod.rs"]
mod examples;
#[path = "../support/mod.rs"]
mod support;

mod receiver;
mod verify;
