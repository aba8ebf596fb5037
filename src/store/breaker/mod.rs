//! `BreakerStore`.
