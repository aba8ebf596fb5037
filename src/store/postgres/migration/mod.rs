//! Brings the table to the schema of this release, while receivers and workers of this and of earlier releases use it.
//!
//! # How a release changes the schema
//!
//! 1. It appends statements to `sql/schema.sql`, and raises the number there and in [`VERSION`](steps::VERSION). New columns are added by
//!    `ALTER TABLE webhook_events ADD COLUMN IF NOT EXISTS`, not inside of `CREATE TABLE`: the same statements make a new table
//!    and complete an old one.
//! 2. Every statement is one of [`Makes`](steps::Makes), which says how the catalogue shows that it was run.
//! 3. Every version works for the release before it, which runs beside the new one during a deploy: columns have a default or
//!    are nullable, and no index is dropped that the earlier release needs.

mod link;
mod migrator;
mod plan;
mod steps;

pub(super) use self::link::Route;
pub(super) use self::migrator::Migrator;
pub(super) use self::steps::Schema;
