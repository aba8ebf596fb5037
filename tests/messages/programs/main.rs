//! What users write by mistake. Each file is one mistake, and begins with what the compiler has to say about it.

mod clock;
#[cfg(feature = "sqlx")]
mod connection;
mod data;
mod inbox;
mod queue;
mod scheme;
mod secret;
mod service;
mod store;
mod worker;

fn main() {}
