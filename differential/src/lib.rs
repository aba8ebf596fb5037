//! Our schemes against independent implementations of them.
//!
//! A [`Contest`](contest::Contest) is one of our schemes and an oracle. Over generated [`Case`](case::Case)s both must give
//! the same verdict, but for what [`disagreements`] lists: a difference that is not there fails, and so does an entry that
//! never occurs. To see the tallies: `cargo test --test verdicts -- --nocapture`.

pub mod case;
pub mod contest;
pub mod disagreements;
pub mod draft;
pub mod judge;
pub mod keys;
pub mod oracles;
pub mod rng;
pub mod twists;
pub mod view;
pub mod wire;

#[path = "../../examples/support/schemes.rs"]
mod schemes;
