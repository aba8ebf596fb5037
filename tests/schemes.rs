//! Every scheme that the crate knows by name, and those that its users describe, through the layer.
//!
//! What is known of each provider stands once, in `preset.rs`. The tests sign by hand as well as with the testing kit, so
//! that a mistake which signing and verifying share is still noticed.

mod support;

#[path = "../examples/support/schemes.rs"]
mod schemes;

#[path = "schemes/bad_headers.rs"]
mod bad_headers;
#[path = "schemes/bad_secrets.rs"]
mod bad_secrets;
#[path = "schemes/bad_signatures.rs"]
mod bad_signatures;
#[path = "schemes/bad_timestamps.rs"]
mod bad_timestamps;
#[path = "schemes/boundaries.rs"]
mod boundaries;
#[path = "schemes/coverage.rs"]
mod coverage;
#[path = "schemes/cross.rs"]
mod cross;
#[path = "schemes/custom.rs"]
mod custom;
#[path = "schemes/endpoint.rs"]
mod endpoint;
#[path = "schemes/guard.rs"]
mod guard;
#[path = "schemes/handshake_abuse.rs"]
mod handshake_abuse;
#[path = "schemes/handshakes.rs"]
mod handshakes;
#[path = "schemes/in_body.rs"]
mod in_body;
#[path = "schemes/inbox.rs"]
mod inbox;
#[path = "schemes/own.rs"]
mod own;
#[path = "schemes/preset.rs"]
mod preset;
#[path = "schemes/preset_table.rs"]
mod preset_table;
#[path = "schemes/property.rs"]
mod property;
#[path = "schemes/refusals.rs"]
mod refusals;
#[path = "schemes/retention.rs"]
mod retention;
#[path = "schemes/round_trip.rs"]
mod round_trip;
#[path = "schemes/signing.rs"]
mod signing;
#[path = "schemes/standard.rs"]
mod standard;
#[path = "schemes/standard_lists.rs"]
mod standard_lists;
#[path = "schemes/twilio.rs"]
mod twilio;
#[path = "schemes/urls.rs"]
mod urls;
