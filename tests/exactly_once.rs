//! Effect and completion in one transaction, on real databases: at most one effect per event, full stop, and none of an event
//! that was acknowledged is missing.

#![allow(clippy::duplicate_mod, reason = "the same cases for every database")]

mod support;

#[path = "exactly_once/receiver.rs"]
mod receiver;

/// The cases on Postgres.
mod postgres {
    #[path = "../exactly_once/cases.rs"]
    mod cases;
    #[path = "../exactly_once/postgres.rs"]
    mod database;
    #[path = "../exactly_once/isolation.rs"]
    mod isolation;
    #[path = "../exactly_once/killed.rs"]
    mod killed;
    #[path = "../exactly_once/storm.rs"]
    mod storm;
    #[path = "../exactly_once/unknown_commit.rs"]
    mod unknown_commit;
}

/// The same cases on SQLite.
mod sqlite {
    #[path = "../exactly_once/cases.rs"]
    mod cases;
    #[path = "../exactly_once/sqlite.rs"]
    mod database;
    #[path = "../exactly_once/storm.rs"]
    mod storm;
    #[path = "../exactly_once/write_lock.rs"]
    mod write_lock;
}
