//! Servers of a test's own, on free ports and in temporary directories.

#![allow(dead_code, reason = "every bench uses a part of it")]

#[cfg(feature = "postgres")]
pub(crate) mod pgbouncer;
pub(crate) mod port;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod redis_scripts;
pub(crate) mod stopped;
