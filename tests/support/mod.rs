//! The helpers that the integration tests share.

#![allow(dead_code, unreachable_pub, unused_imports, reason = "every test binary uses a part of it")]

use tower_webhook::{EventKey, scheme};

mod answer;
pub mod audited;
pub mod checker;
pub mod controlled;
pub mod directory;
pub mod example;
pub mod extremes;
pub mod faulty;
pub mod handler;
pub mod logs;
pub mod process;
pub mod proxy;
mod receiver;
pub mod servers;
pub mod socket;
pub mod states;
pub mod wait;

pub use self::answer::Answer;
pub use self::receiver::Receiver;

/// The receiver's clock starts here.
pub const NOW: u64 = 1_700_000_000;
pub const SECRET: &str = "whsec_test_secret";
pub const HEADER: &str = "webhook-signature";

pub fn scheme() -> scheme::Template {
    scheme::timestamped(SECRET).expect("a valid secret")
}

/// The key of an event at `/webhooks`.
pub fn key(id: &str) -> EventKey {
    EventKey::new("/webhooks", None, id)
}
