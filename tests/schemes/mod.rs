//! Every scheme that the crate knows by name, and those that its users describe, through the layer.
//!
//! What is known of each provider stands once, in `preset.rs`. The tests sign by hand as well as with the testing kit, so
//! that a mistake which signing and verifying share is still noticed.

mod bad_headers;
mod bad_secrets;
mod bad_signatures;
mod bad_timestamps;
mod boundaries;
mod coverage;
mod cross_provider;
mod custom;
mod diagnose;
mod endpoint;
mod handshake_abuse;
mod handshakes;
mod in_body;
mod inbox;
mod plaid;
mod preset;
mod preset_table;
mod property;
mod refusals;
mod replay_guard;
mod retention;
mod round_trip;
mod signing;
mod standard;
mod standard_lists;
mod templates;
mod twilio;
mod urls;
