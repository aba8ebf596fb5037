//! `PostgresStore`.
