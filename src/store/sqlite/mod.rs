//! `SqliteStore`.
