//! The inbox and its worker, on the memory store: what the sender sees, what the handler gets, what becomes of failures.

mod support;

#[path = "inbox/accepting.rs"]
mod accepting;
#[path = "inbox/capacity.rs"]
mod capacity;
#[path = "inbox/conformance.rs"]
mod conformance;
#[path = "inbox/desk.rs"]
mod desk;
#[path = "inbox/failing.rs"]
mod failing;
#[path = "inbox/limits.rs"]
mod limits;
#[path = "inbox/ordering.rs"]
mod ordering;
#[path = "inbox/outages.rs"]
mod outages;
#[path = "inbox/rolling.rs"]
mod rolling;
#[path = "inbox/running.rs"]
mod running;
