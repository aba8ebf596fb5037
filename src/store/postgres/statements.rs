//! The statements of one table: the sections of `sql/*.sql`.

use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use super::table::TableName;
use crate::store::queue::DISCARDED;
use crate::store::sections;

/// Completes a claim inside a handler's own transaction, in the default table, `webhook_events`, for drivers other than
/// sqlx. It changes one row. If it changes none, the token does not hold the claim: roll back.
///
/// Its parameters are those of an [`Enlistment`](crate::store::Enlistment): the key (`text`), the token (`bytea`), the
/// summary (`text`, without NUL), the retention in milliseconds (`bigint`).
pub const COMPLETE_SQL: &str = "UPDATE webhook_events
   SET state = 'completed', processed_at = clock_timestamp(), summary = $3,
       expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond',
       lease_until = clock_timestamp(), due_at = NULL, was_due_at = NULL,
       head = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE head END,
       body = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE body END,
       body_until = CASE WHEN arrival IS NOT NULL AND NULL::bigint /* kept */ > 0
                         THEN clock_timestamp() + NULL::bigint /* kept */ * interval '1 millisecond' END
 WHERE key = $1 AND token = $2 AND state = 'running'
";

/// [`COMPLETE_SQL`] must run unchanged, so it contains this expression, which [`complete`](Statements::complete)
/// replaces by the body retention.
const BODY_RETENTION_PLACEHOLDER: &str = "NULL::bigint /* kept */";

const FILES: [&str; 5] = [
    include_str!("sql/claims.sql"),
    include_str!("sql/queue.sql"),
    include_str!("sql/lease.sql"),
    include_str!("sql/operators.sql"),
    include_str!("sql/server.sql"),
];

pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// The texts for one table.
#[derive(Clone)]
pub(super) struct Statements {
    pub(super) table: TableName,
    /// How long bodies of completed events are kept, in milliseconds and in SQL.
    completed_body_retention_sql: String,
}

impl Statements {
    /// With a `completed_body_retention_ms` of `None`, bodies of completed events are kept as long as their records.
    pub(super) fn new(table: TableName, completed_body_retention_ms: Option<i64>) -> Self {
        let completed_body_retention_sql =
            completed_body_retention_ms.map_or("NULL::bigint".to_owned(), |ms| format!("{ms}::bigint"));
        Self { table, completed_body_retention_sql }
    }

    /// The section of this name.
    pub(super) fn text(&self, name: &str) -> Arc<str> {
        self.table.render(&self.section(name, &[])).into()
    }

    /// The statement that leases the events of another section.
    pub(super) fn lease(&self, due_events: &str) -> Arc<str> {
        self.table.render(&self.section("lease", &[("due_events", due_events)])).into()
    }

    /// The section of this name, about the rows that match `matching`.
    pub(super) fn matching(&self, name: &str, matching: &str) -> Arc<str> {
        self.table.render(&self.section(name, &[("matching", matching)])).into()
    }

    pub(super) fn complete(&self) -> Arc<str> {
        self.table.render(&COMPLETE_SQL.replace(BODY_RETENTION_PLACEHOLDER, &self.completed_body_retention_sql)).into()
    }

    fn section(&self, name: &str, values: &[(&str, &str)]) -> String {
        let own = [("completed_body_retention", &*self.completed_body_retention_sql), ("discarded", DISCARDED)];
        sections::sql(&FILES, name, &[values, &own].concat())
    }
}

pub(super) fn statement(text: &Arc<str>) -> Statement {
    // Safe: only this module's texts and quoted table names.
    sqlx::query(AssertSqlSafe(text.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_have_no_placeholders_that_are_unknown() {
        let statements = Statements::new(TableName::default(), None);
        let headings = FILES.iter().flat_map(|file| file.split("-- name: ").skip(1));
        for name in headings.filter_map(|section| section.lines().next()) {
            let text = statements.section(name, &[("due_events", "{first_due}"), ("matching", "{expired}")]);
            assert!(!text.replace("'{}'", "").contains('{'), "{name}: {text}");
        }
    }
}
