//! What the benches share.

#![allow(dead_code, reason = "every bench uses a part of it")]

pub(crate) mod load;
pub(crate) mod payload;
pub(crate) mod report;
pub(crate) mod variants;
