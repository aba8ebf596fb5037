use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::steps::{Makes, Schema, Step, VERSION};

/// How the version is written into the table's comment, which may say other things as well.
const MARK: &str = "tower-webhook schema ";

/// The table as the catalogue describes it.
#[derive(Debug, Default)]
pub(super) struct Catalogue {
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
        /// What an earlier try left behind under the same name, as it is to be dropped.
        invalid: Option<String>,
    },
}

impl Catalogue {
    pub(super) fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
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
            // Only the owner can write it. To others the table is as good as complete.
            Makes::Version => self.is_owner && self.version().is_none_or(|version| version < VERSION),
        }
    }

    fn version(&self) -> Option<u32> {
        let (_, after) = self.comment.split_once(MARK)?;
        after.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    }

    /// The table's comment with the version of this release in it.
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

impl Schema {
    /// The query that [`is_complete`](Self::is_complete) reads.
    pub(in super::super) fn catalogue(&self) -> &str {
        &self.catalogue
    }

    /// Whether there is nothing to migrate.
    pub(in super::super) fn is_complete(&self, row: &PgRow) -> Result<bool, sqlx::Error> {
        Ok(self.next_change(&Catalogue::read(row)?).is_none())
    }

    /// The next change that the table needs; `None`, if it is complete.
    pub(super) fn next_change(&self, found: &Catalogue) -> Option<Change> {
        if !found.has_table {
            // In one transaction, and without CONCURRENTLY: nobody sees the table before it is whole.
            return Some(Change::Brief(all(self.steps.iter())));
        }
        // A later release has migrated the table. It knows better what is missing, and its schema serves this one, too.
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
                // Under that name there may be an index of another table, which is to be told and not to be passed over.
                sql: first.sql.replacen(" IF NOT EXISTS", "", 1),
                invalid: found.invalid_indexes.contains(name).then(|| format!("{}.{}", found.schema, quoted(name))),
            }),
            Makes::Version => {
                Some(Change::Brief(format!("COMMENT ON TABLE {} IS {}", self.table, literal(&found.marked()))))
            }
        }
    }
}

fn all<'a>(steps: impl Iterator<Item = &'a Step>) -> String {
    steps.map(|step| step.sql.as_str()).collect::<Vec<_>>().join("; ")
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// `text` as SQL reads it, whatever `standard_conforming_strings` is.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::super::super::table::TableName;
    use super::*;

    fn schema() -> Schema {
        Schema::of(&TableName::default())
    }

    /// A table with everything that this release needs.
    fn complete() -> Catalogue {
        let mut found = Catalogue { has_table: true, has_sequence: true, is_owner: true, ..Catalogue::default() };
        found.comment = format!("{MARK}{VERSION}");
        found.schema = "public".to_owned();
        for step in schema().steps.iter() {
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
        assert_eq!(schema().next_change(&complete()), None);
        let others = Catalogue { is_owner: false, comment: String::new(), ..complete() };
        assert_eq!(schema().next_change(&others), None, "who cannot write the version goes without");
    }

    #[test]
    fn table_of_a_later_release_is_left_alone() {
        let later = Catalogue { comment: format!("{MARK}{}", VERSION + 1), indexes: Vec::new(), ..complete() };
        assert_eq!(schema().next_change(&later), None);
    }

    #[test]
    fn missing_table_is_made_whole_in_one_transaction() {
        let Some(Change::Brief(sql)) = schema().next_change(&Catalogue::default()) else { panic!("not brief") };
        for part in ["CREATE TABLE", "CREATE SEQUENCE", "CREATE INDEX", "COMMENT ON TABLE"] {
            assert!(sql.contains(part), "{part}: {sql}");
        }
        assert!(!sql.contains("CONCURRENTLY"));
    }

    #[test]
    fn missing_index_is_one_change_and_an_invalid_one_is_dropped_first() {
        let mut found = complete();
        let index = found.indexes.remove(0);
        let Some(Change::Index { sql, invalid: None }) = schema().next_change(&found) else { panic!("no index") };
        assert!(sql.starts_with("CREATE INDEX \"") && sql.contains(&index), "{sql}");
        found.invalid_indexes.push(index.clone());
        let Some(Change::Index { invalid, .. }) = schema().next_change(&found) else { panic!("no index") };
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
            let Some(Change::Brief(sql)) = schema().next_change(&found) else { panic!("not brief") };
            assert!(sql.ends_with(&literal(&marked)), "{sql}");
        }
        assert_eq!(literal("it's \\ ours"), "E'it''s \\\\ ours'");
    }
}
