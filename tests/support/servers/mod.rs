//! Servers of a test's own, on free ports and in temporary directories.

#![allow(dead_code, unreachable_pub, reason = "every test binary and every bench uses a part of it")]

#[cfg(feature = "postgres")]
pub mod pgbouncer;
pub mod port;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod redis;
pub mod redis_scripts;
