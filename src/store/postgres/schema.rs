//! The schema of this release, and the changes that a table needs to have it.
//!
//! # How a release changes the schema
//!
//! 1. Append statements to `sql/schema.sql`, and raise the number there and in [`VERSION`]. Add new columns by `ALTER
//!    TABLE webhook_events ADD COLUMN IF NOT EXISTS`, and not in `CREATE TABLE`: the same statements make a new table
//!    and complete an old one.
//! 2. Every statement is one of [`Makes`], which says how the catalogue shows that it was run.
//! 3. Every version works for the release before it, which runs beside the new one during a deploy: columns have a
//!    default or are nullable, and no index is dropped that the earlier release needs.

use std::sync::Arc;

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::statements::Statements;
use super::table::{TableName, quoted};
use crate::store::sections;

/// Makes the default table, `webhook_events`. It can be repeated. On a table that is in use,
/// [`PostgresStore::migrate`](super::PostgresStore::migrate) is the better choice: it does not stop receivers.
pub const SCHEMA_SQL: &str = include_str!("sql/schema.sql");

/// The version that `sql/schema.sql` describes. A table of the release before versions were recorded has none: that is
/// version 1.
const VERSION: u32 = 2;

/// How the version is written into the table's comment, which may say other things as well.
const MARK: &str = "tower-webhook schema ";

/// The table that this release needs: the statements that make it, and the query that shows how much of it there is.
pub(super) struct Schema {
    pub(super) table: TableName,
    /// All statements, for the table.
    pub(super) sql: String,
    pub(super) catalogue_sql: Arc<str>,
    steps: Vec<Step>,
}

/// A statement of `sql/schema.sql`, for the table.
struct Step {
    makes: Makes,
    sql: String,
}

/// The thing that a statement makes. The catalogue shows whether it is there.
#[derive(Debug, PartialEq, Eq)]
enum Makes {
    Table,
    Sequence,
    Column(String),
    /// An index, by its whole name.
    Index(String),
    /// The number of the version, in the table's comment.
    Version,
}

/// The table as the catalogue describes it.
#[derive(Debug, Default)]
struct Catalogue {
    has_table: bool,
    has_sequence: bool,
    is_owner: bool,
    comment: String,
    columns: Vec<String>,
    indexes: Vec<String>,
    invalid_indexes: Vec<String>,
    /// The table's schema, quoted.
    schema: String,
}

/// One change that brings the table closer to the schema of this release.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Statements for one transaction. They are over at once when they have their locks.
    Brief(String),
    /// An index on a table that may be large and busy.
    Index {
        /// `CREATE INDEX` without `CONCURRENTLY`.
        sql: String,
        /// The quoted name of an index that an earlier try left behind, and that has to be dropped first.
        invalid: Option<String>,
    },
}

impl Schema {
    pub(super) fn new(statements: &Statements) -> Self {
        let table = &statements.table;
        Self {
            sql: table.render(SCHEMA_SQL),
            catalogue_sql: statements.text("catalogue"),
            steps: parse(SCHEMA_SQL).iter().filter_map(|statement| Step::new(table, statement)).collect(),
            table: table.clone(),
        }
    }

    /// Reads the row of the catalogue, and returns the next change that the table needs; `None` if it is complete.
    pub(super) fn next_change(&self, row: &PgRow) -> Result<Option<Change>, sqlx::Error> {
        Ok(self.change_of(&Catalogue::read(row)?))
    }

    /// Reads the row of the catalogue, and returns what is wrong with the table; `None` if it is complete.
    pub(super) fn fault_of(&self, row: &PgRow) -> Result<Option<String>, sqlx::Error> {
        let found = Catalogue::read(row)?;
        Ok(self.change_of(&found).map(|_| {
            let fault = match (found.has_table, found.version().unwrap_or(1)) {
                (false, _) => "is missing".to_owned(),
                (true, VERSION) => "is not complete".to_owned(),
                (true, version) => format!("is of version {version}, and this release needs version {VERSION}"),
            };
            format!("the table {} {fault}: call PostgresStore::migrate", self.table)
        }))
    }

    /// Reads the row of the catalogue, and returns the version of the table; `None` if it is missing.
    pub(super) fn version_of(row: &PgRow) -> Result<Option<u32>, sqlx::Error> {
        let found = Catalogue::read(row)?;
        Ok(found.has_table.then(|| found.version().unwrap_or(1)))
    }

    fn change_of(&self, found: &Catalogue) -> Option<Change> {
        if !found.has_table {
            // In one transaction, and without CONCURRENTLY: the table cannot be seen before it is whole.
            return Some(Change::Brief(all(self.steps.iter())));
        }
        // A later release has migrated the table. Its schema serves this release as well.
        if found.version().is_some_and(|version| version > VERSION) {
            return None;
        }
        let mut missing = self.steps.iter().filter(|step| found.lacks(&step.makes)).peekable();
        let first = missing.peek()?;
        match &first.makes {
            Makes::Table | Makes::Sequence | Makes::Column(_) => Some(Change::Brief(all(
                missing.filter(|step| matches!(step.makes, Makes::Sequence | Makes::Column(_)))
            ))),
            Makes::Index(name) => Some(Change::Index {
                // An index of another table may have that name: an error is better than passing it over.
                sql: first.sql.replacen(" IF NOT EXISTS", "", 1),
                invalid: found.invalid_indexes.contains(name).then(|| format!("{}.{}", found.schema, quoted(name))),
            }),
            Makes::Version => {
                Some(Change::Brief(format!("COMMENT ON TABLE {} IS {}", self.table, literal(&found.marked()))))
            }
        }
    }
}

impl Step {
    fn new(table: &TableName, statement: &str) -> Option<Self> {
        Some(Self { makes: Makes::of(table, statement)?, sql: table.render(statement) })
    }
}

impl Makes {
    /// Parses a statement before it is rendered: a table's name can be anything.
    fn of(table: &TableName, statement: &str) -> Option<Self> {
        let mut words = statement.split_whitespace().filter(|word| !["IF", "NOT", "EXISTS", "UNIQUE"].contains(word));
        let mut next = || words.next().unwrap_or_default();
        match (next(), next(), next()) {
            ("CREATE", "TABLE", _) => Some(Self::Table),
            ("CREATE", "SEQUENCE", _) => Some(Self::Sequence),
            ("CREATE", "INDEX", name) => Some(Self::Index(table.relation(name)?)),
            ("ALTER", "TABLE", _) => match (next(), next(), next()) {
                ("ADD", "COLUMN", name) => Some(Self::Column(name.to_owned())),
                _ => None,
            },
            ("COMMENT", "ON", "TABLE") => Some(Self::Version),
            _ => None,
        }
    }
}

impl Catalogue {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            has_table: row.try_get("has_table")?,
            has_sequence: row.try_get("has_sequence")?,
            is_owner: row.try_get("is_owner")?,
            comment: row.try_get::<Option<String>, _>("comment")?.unwrap_or_default(),
            columns: row.try_get("columns")?,
            indexes: row.try_get("indexes")?,
            invalid_indexes: row.try_get("invalid_indexes")?,
            schema: row.try_get::<Option<String>, _>("schema")?.unwrap_or_default(),
        })
    }

    fn lacks(&self, makes: &Makes) -> bool {
        match makes {
            Makes::Table => !self.has_table,
            Makes::Sequence => !self.has_sequence,
            Makes::Column(name) => !self.columns.contains(name),
            Makes::Index(name) => !self.indexes.contains(name),
            // Only the owner can write the version. To other roles the table is as good as complete.
            Makes::Version => self.is_owner && self.version().is_none_or(|version| version < VERSION),
        }
    }

    fn version(&self) -> Option<u32> {
        let (_, after) = self.comment.split_once(MARK)?;
        after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// Returns the table's comment with the version of this release in it.
    fn marked(&self) -> String {
        match (self.comment.split_once(MARK), self.comment.is_empty()) {
            (None, true) => format!("{MARK}{VERSION}"),
            (None, false) => format!("{}\n{MARK}{VERSION}", self.comment),
            (Some((before, after)), _) => {
                format!("{before}{MARK}{VERSION}{}", after.trim_start_matches(|c: char| c.is_ascii_digit()))
            }
        }
    }
}

fn all<'a>(steps: impl Iterator<Item = &'a Step>) -> String {
    steps.map(|step| step.sql.as_str()).collect::<Vec<_>>().join("; ")
}

/// Quotes a text, whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Returns the statements of `sql`, without its comments.
fn parse(sql: &str) -> Vec<String> {
    let code = sections::code(sql).collect::<Vec<_>>().join("\n");
    code.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        Schema::new(&Statements::new(TableName::default(), None))
    }

    /// A table with everything that this release needs.
    fn complete() -> Catalogue {
        let mut found = Catalogue { has_table: true, has_sequence: true, is_owner: true, ..Catalogue::default() };
        found.comment = format!("{MARK}{VERSION}");
        found.schema = "public".to_owned();
        for step in &schema().steps {
            match &step.makes {
                Makes::Index(name) => found.indexes.push(name.clone()),
                Makes::Column(name) => found.columns.push(name.clone()),
                _ => {}
            }
        }
        found
    }

    #[test]
    fn complete_table_needs_nothing() {
        assert_eq!(schema().change_of(&complete()), None);
        let others = Catalogue { is_owner: false, comment: String::new(), ..complete() };
        assert_eq!(schema().change_of(&others), None, "a role that cannot write the version goes without");
    }

    #[test]
    fn table_of_a_later_release_is_left_alone() {
        let later = Catalogue { comment: format!("{MARK}{}", VERSION + 1), indexes: Vec::new(), ..complete() };
        assert_eq!(schema().change_of(&later), None);
    }

    #[test]
    fn missing_table_is_made_whole_in_one_transaction() {
        let Some(Change::Brief(sql)) = schema().change_of(&Catalogue::default()) else { panic!("not brief") };
        for part in ["CREATE TABLE", "CREATE SEQUENCE", "CREATE INDEX", "COMMENT ON TABLE"] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
        assert!(!sql.contains("CONCURRENTLY"));
    }

    #[test]
    fn missing_index_is_one_change_and_an_invalid_one_is_dropped_first() {
        let mut found = complete();
        let index = found.indexes.remove(0);
        let Some(Change::Index { sql, invalid: None }) = schema().change_of(&found) else { panic!("no index") };
        assert!(sql.starts_with("CREATE INDEX \"") && sql.contains(&index), "{sql}");
        found.invalid_indexes.push(index.clone());
        let Some(Change::Index { invalid, .. }) = schema().change_of(&found) else { panic!("no index") };
        assert_eq!(invalid, Some(format!("public.\"{index}\"")));
    }

    #[test]
    fn comment_of_the_owner_is_kept() {
        for (comment, marked) in [
            ("", format!("{MARK}{VERSION}")),
            ("it's \\ ours", format!("it's \\ ours\n{MARK}{VERSION}")),
            ("ours\ntower-webhook schema 0, see wiki", format!("ours\n{MARK}{VERSION}, see wiki")),
        ] {
            let found = Catalogue { comment: comment.to_owned(), ..complete() };
            assert_eq!(found.marked(), marked);
            let Some(Change::Brief(sql)) = schema().change_of(&found) else { panic!("not brief") };
            assert!(sql.ends_with(&literal(&marked)), "{sql}");
        }
        assert_eq!(literal("it's \\ ours"), "E'it''s \\\\ ours'");
    }

    #[test]
    fn every_statement_of_the_schema_says_what_it_makes() {
        let table = TableName::default();
        for statement in parse(SCHEMA_SQL) {
            assert!(
                Makes::of(&table, &statement).is_some(),
                "the catalogue cannot tell whether this was run: {statement}"
            );
            let is_repeatable = statement.contains(" IF NOT EXISTS ") || statement.starts_with("COMMENT");
            assert!(is_repeatable, "this cannot be run again: {statement}");
        }
    }

    #[test]
    fn schema_ends_with_the_number_of_its_version() {
        let last = parse(SCHEMA_SQL).pop().expect("a statement");
        assert_eq!(last, format!("COMMENT ON TABLE webhook_events IS 'tower-webhook schema {VERSION}'"));
    }

    #[test]
    fn statements_are_told_apart_by_what_they_make() {
        let table: TableName = r#"hooks."it's; --""#.parse().expect("a name");
        for (statement, makes) in [
            ("CREATE TABLE IF NOT EXISTS webhook_events (\n key text)", Makes::Table),
            ("CREATE SEQUENCE IF NOT EXISTS webhook_events_arrivals", Makes::Sequence),
            (
                "CREATE INDEX IF NOT EXISTS webhook_events_due ON webhook_events (x)",
                Makes::Index("it's; --_due".to_owned()),
            ),
            ("CREATE UNIQUE INDEX IF NOT EXISTS webhook_events_first ON x", Makes::Index("it's; --_first".to_owned())),
            ("ALTER TABLE webhook_events ADD COLUMN IF NOT EXISTS since bigint", Makes::Column("since".to_owned())),
            ("COMMENT ON TABLE webhook_events IS 'x'", Makes::Version),
        ] {
            assert_eq!(Makes::of(&table, statement), Some(makes));
        }
        assert_eq!(Makes::of(&table, "UPDATE webhook_events SET x = 1"), None);
    }
}
