//! The examples, and what they print.

mod receiver;
mod verify;
