//! x
#[path = "postgres/bed.rs"]
mod bed;
#[path = "postgres/conformance.rs"]
mod conformance;
mod support;
