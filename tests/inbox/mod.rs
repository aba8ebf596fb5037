//! The inbox and its worker, on the memory store: what the sender sees, what the handler gets, what becomes of failures.

mod accepting;
mod attempts;
mod conformance;
mod failing;
mod fixture;
mod limits;
mod nested;
mod ordering;
mod outages;
mod rolling;
mod running;
mod timeouts;
