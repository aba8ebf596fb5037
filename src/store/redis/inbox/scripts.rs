//! The scripts of the inbox. Each names one key, which decides about the node; the others begin with the same prefix.

use std::sync::LazyLock;

use super::super::script::Script;

pub(super) static ACCEPT: LazyLock<Script> = LazyLock::new(|| on_events(&[include_str!("lua/accept.lua")]));
pub(super) static LEASE: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/lease.lua")));
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/renew.lua")));
pub(super) static COMPLETE: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/complete.lua")));
pub(super) static BURY: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/bury.lua")));
pub(super) static PUT_BACK: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/put_back.lua")));
pub(super) static BROWSE: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/browse.lua")));
pub(super) static GET: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/get.lua")));
pub(super) static REQUEUE: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/requeue.lua")));
pub(super) static DISCARD: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/discard.lua")));
pub(super) static FORGET: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/forget.lua")));
pub(super) static WAITING: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/waiting.lua")));
pub(super) static COUNTS: LazyLock<Script> = LazyLock::new(|| with_common(include_str!("lua/counts.lua")));

fn with_common(code: &str) -> Script {
    on_events(&[include_str!("lua/common.lua"), code])
}

/// What a script does not need costs it time: everything in front of its own code is run, too.
fn on_events(code: &[&str]) -> Script {
    Script::new([include_str!("lua/events.lua")].into_iter().chain(code.iter().copied()).collect::<String>())
}
