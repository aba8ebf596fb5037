//! The scripts of the inbox. Each names one key, which decides about the node; the others begin with the same prefix.
//!
//! A full server runs all of them but the one that accepts: what they write is less than what they help to delete.

use std::sync::LazyLock;

use super::super::script::Script;

const EVENTS: &str = include_str!("lua/events.lua");
const COMMON: &str = concat!(include_str!("lua/common.lua"), include_str!("lua/moving.lua"));
const RIGHT: &str = include_str!("lua/right.lua");
const QUEUE: &str = include_str!("lua/queue.lua");

pub(super) static ACCEPT: LazyLock<Script> =
    LazyLock::new(|| Script::new([EVENTS, include_str!("lua/accept.lua")].concat()));
pub(super) static LEASE: LazyLock<Script> =
    LazyLock::new(|| with_common(&[RIGHT, QUEUE, include_str!("lua/lease.lua")]));
pub(super) static STRAYS: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/strays.lua")]));
pub(super) static RENEW: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/renew.lua")]));
pub(super) static COMPLETE: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/complete.lua")]));
pub(super) static BURY: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/bury.lua")]));
pub(super) static PUT_BACK: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/put_back.lua")]));
pub(super) static BROWSE: LazyLock<Script> = LazyLock::new(|| with_common(&[RIGHT, include_str!("lua/browse.lua")]));
pub(super) static GET: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/get.lua")]));
pub(super) static REQUEUE: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/requeue.lua")]));
pub(super) static DISCARD: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/discard.lua")]));
pub(super) static FORGET: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/forget.lua")]));
pub(super) static PURGE: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/purge.lua")]));
pub(super) static SWEEP: LazyLock<Script> = LazyLock::new(|| with_common(&[RIGHT, include_str!("lua/sweep.lua")]));
pub(super) static WAITING: LazyLock<Script> = LazyLock::new(|| with_common(&[include_str!("lua/waiting.lua")]));
pub(super) static COUNTS: LazyLock<Script> = LazyLock::new(|| with_common(&[QUEUE, include_str!("lua/counts.lua")]));

/// A script that knows events by their records. Code that it does not need costs it time: everything in front of its own is run, too.
fn with_common(code: &[&str]) -> Script {
    Script::allowed_when_full([&[EVENTS, COMMON], code].concat().concat())
}
