//! The check of the database and of the place where it is, at start-up.

use std::collections::BTreeSet;

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection as _, Executor, Row as _};

use super::SqliteStore;
use super::fault::Fault;
use super::file_system;
use super::statements::statement;
use crate::store::{StoreError, trial};
use crate::telemetry;

/// The findings of [`SqliteStore::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SqliteReport {
    /// The version of SQLite that is compiled in.
    pub sqlite_version: String,
    /// The journal mode of the database. The store needs `wal`.
    pub journal_mode: String,
    /// How a connection of the pool syncs to disk: `off`, `normal`, `full` or `extra`. The store's own connections always
    /// have `full`.
    pub synchronous: String,
    /// The type of the file system that the database is on, where the operating system tells it (Linux).
    pub file_system: Option<String>,
    /// Columns of the table that this release does not know: a later release has added them.
    pub unknown_columns: Vec<String>,
    /// Reasons why the store does not work, or may forget events, and how to remove them. Empty if there are none.
    pub warnings: Vec<String>,
}

impl SqliteStore {
    /// Claims, renews, releases and deletes an event of its own to see that the database can be written, and checks
    /// whether the place where it is lets it keep what was written. Call it once, at start-up.
    ///
    /// Warnings are in the report, and are logged to `tracing`. Whether they are reason enough not to start is the
    /// caller's decision:
    ///
    /// ```no_run
    /// # async fn start(store: tower_webhook::store::SqliteStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = store.check().await?;
    /// if !report.warnings.is_empty() {
    ///     return Err(report.warnings.join("; ").into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the database cannot be opened or written, the table is missing, or another connection holds the write lock for
    /// longer than the [lock wait](super::SqliteStoreBuilder::lock_wait).
    pub async fn check(&self) -> Result<SqliteReport, StoreError> {
        let report = self.retry_while_locked(|| async { Ok(self.report().await?) }).await?;
        report.warnings.iter().for_each(|warning| telemetry::sqlite_warned(warning));
        self.try_out().await?;
        Ok(report)
    }

    async fn report(&self) -> Result<SqliteReport, Fault> {
        let database = &self.reader.database;
        let mut connection = database.connect_as_pool().await?;
        let table = &database.statements.table;
        let columns = columns(&mut connection, table.name()).await?;
        if columns.is_empty() {
            let path = database.path().display();
            let missing = format!(
                "the table {table} is missing from {path}, and with it all that the store remembered: something has \
                 deleted it since the store was opened, and a store that is opened now creates it"
            );
            return Err(sqlx::Error::Configuration(missing.into()).into());
        }
        let known = database.statements.columns();
        let report = SqliteReport {
            sqlite_version: text(&mut connection, "SELECT sqlite_version()").await?,
            journal_mode: text(&mut connection, "PRAGMA journal_mode").await?,
            synchronous: synchronous(&mut connection).await?.to_owned(),
            file_system: file_system::of(database.path()),
            unknown_columns: columns.into_iter().filter(|column| !known.contains(&**column)).collect(),
            warnings: Vec::new(),
        };
        // The report is complete, however the connection ends.
        let _ = connection.close().await;
        Ok(SqliteReport { warnings: report.warnings(), ..report })
    }

    /// Claims, renews, releases and deletes a test event, under an id that no sender can use.
    async fn try_out(&self) -> Result<(), StoreError> {
        let key = trial::claim_and_release(self).await?;
        let delete = format!("DELETE FROM {} WHERE key = ?1", self.writer().statements().table).into();
        let delete = || statement(&delete).bind(key.as_str().to_owned());
        self.retry_while_locked(|| async { Ok(self.writer().connection.execute(delete()).await?) }).await?;
        Ok(())
    }
}

async fn text(connection: &mut SqliteConnection, sql: &'static str) -> Result<String, sqlx::Error> {
    connection.fetch_one(sql).await?.try_get(0)
}

async fn synchronous(connection: &mut SqliteConnection) -> Result<&'static str, sqlx::Error> {
    let level: i64 = connection.fetch_one("PRAGMA synchronous").await?.try_get(0)?;
    Ok(match level {
        0 => "off",
        1 => "normal",
        2 => "full",
        _ => "extra",
    })
}

/// The names of the table's columns; none if there is no table.
async fn columns(connection: &mut SqliteConnection, table: &str) -> Result<BTreeSet<String>, sqlx::Error> {
    let sql = format!("SELECT name FROM pragma_table_info('{}')", table.replace('\'', "''"));
    sqlx::query_scalar(AssertSqlSafe(sql)).fetch_all(connection).await.map(BTreeSet::from_iter)
}

impl SqliteReport {
    fn warnings(&self) -> Vec<String> {
        let Self { journal_mode, synchronous, unknown_columns, .. } = self;
        let found = [
            (journal_mode != "wal").then(|| {
                format!(
                    "the database is in journal mode {journal_mode}: writers and readers wait for each other; leave it in WAL \
                     mode, in which the store brings it"
                )
            }),
            matches!(&**synchronous, "off" | "normal").then(|| {
                format!(
                    "synchronous is {synchronous} on connections of the pool: a power loss may undo what a handler's \
                     transaction has completed; leave it at full"
                )
            }),
            self.file_system.as_deref().filter(|name| file_system::is_network(name)).map(|name| {
                format!(
                    "the database is on a network file system ({name}), whose locks and shared memory SQLite cannot rely \
                     on: move it to a disk of this machine, or use another store"
                )
            }),
            (!unknown_columns.is_empty()).then(|| {
                format!(
                    "the table has columns that this release does not know ({}): a later release has opened the file, and \
                     this one may run beside it for a deploy only",
                    unknown_columns.join(", ")
                )
            }),
        ];
        found.into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_is_one_warning() {
        let good = SqliteReport {
            sqlite_version: "3.50.2".to_owned(),
            journal_mode: "wal".to_owned(),
            synchronous: "full".to_owned(),
            file_system: Some("ext4".to_owned()),
            unknown_columns: Vec::new(),
            warnings: Vec::new(),
        };
        assert_eq!(good.warnings(), [""; 0]);
        for (report, said) in [
            (SqliteReport { journal_mode: "delete".to_owned(), ..good.clone() }, "journal mode delete"),
            (SqliteReport { synchronous: "normal".to_owned(), ..good.clone() }, "synchronous is normal"),
            (SqliteReport { file_system: Some("nfs4".to_owned()), ..good.clone() }, "network file system (nfs4)"),
            (SqliteReport { unknown_columns: vec!["later".to_owned()], ..good.clone() }, "does not know (later)"),
        ] {
            let warnings = report.warnings();
            assert!(warnings.len() == 1 && warnings[0].contains(said), "{warnings:?}");
        }
        assert_eq!(SqliteReport { file_system: None, synchronous: "extra".to_owned(), ..good }.warnings(), [""; 0]);
    }
}
