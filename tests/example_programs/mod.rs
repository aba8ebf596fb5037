//! The examples, and what they print.

mod receiver;
mod small;
mod verify;
