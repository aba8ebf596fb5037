//! Effect and completion in one transaction, on real databases: at most one effect per event, full stop, and none of an event
//! that was acknowledged is missing.

#![allow(clippy::duplicate_mod, reason = "the same cases for every database")]

mod receiver;

/// The cases on Postgres.
mod postgres {
    #[path = "../cases.rs"]
    mod cases;
    mod database;
    mod isolation;
    mod killed;
    #[path = "../storm.rs"]
    mod storm;
    mod unknown_commit;
}

/// The same cases on SQLite.
mod sqlite {
    #[path = "../cases.rs"]
    mod cases;
    mod database;
    #[path = "../storm.rs"]
    mod storm;
    mod write_lock;
}
