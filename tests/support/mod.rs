//! The helpers that the integration tests share.

#![cfg_attr(
    not(all(feature = "postgres", feature = "redis", feature = "sqlite")),
    allow(dead_code, unused_imports, reason = "some helpers serve the tests of some stores only")
)]

use tower_webhook::{EventKey, scheme};

mod answer;
pub(crate) mod audited;
pub(crate) mod checker;
pub(crate) mod controlled;
pub(crate) mod directory;
pub(crate) mod example;
pub(crate) mod extremes;
pub(crate) mod faulty;
pub(crate) mod handler;
pub(crate) mod logs;
pub(crate) mod process;
pub(crate) mod proxy;
mod receiver;
pub(crate) mod servers;
pub(crate) mod socket;
pub(crate) mod states;
pub(crate) mod wait;

pub(crate) use self::answer::Answer;
pub(crate) use self::receiver::Receiver;

/// The receiver's clock starts here.
pub(crate) const NOW: u64 = 1_700_000_000;
pub(crate) const SECRET: &str = "whsec_test_secret";
pub(crate) const HEADER: &str = "webhook-signature";

pub(crate) fn scheme() -> scheme::Template {
    scheme::timestamped(SECRET).expect("a valid secret")
}

/// The key of an event at `/webhooks`.
pub(crate) fn key(id: &str) -> EventKey {
    EventKey::new("/webhooks", None, id)
}
