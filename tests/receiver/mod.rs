//! The layer on the memory store: one delivery as its user sees it, which event it is, what the replay guard refuses, and
//! completions in the handler's own transaction.

mod delivery;
mod enlist;
mod explained;
mod failure_hook;
mod hints;
mod identity;
mod kit;
mod replay_guard;
