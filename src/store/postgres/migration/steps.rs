use std::sync::Arc;

use super::super::schema::SCHEMA_SQL;
use super::super::table::TableName;

/// The version that `sql/schema.sql` describes. A table of the release before versions were recorded has none: that is 1.
pub(in super::super) const VERSION: u32 = 2;

const CATALOGUE_SQL: &str = include_str!("../sql/catalogue.sql");

/// The table that this release needs: the statements that make it, and the query that shows how much of it there is.
#[derive(Clone)]
pub(in super::super) struct Schema {
    pub(super) table: TableName,
    pub(super) steps: Arc<[Step]>,
    pub(super) catalogue: Arc<str>,
}

/// A statement of `sql/schema.sql`, about the store's table.
pub(super) struct Step {
    pub(super) makes: Makes,
    pub(super) sql: String,
}

/// What a statement makes, and so what is looked up in the catalogue to see whether it was run.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) enum Makes {
    Table,
    Sequence,
    Column(String),
    /// An index, by its whole name.
    Index(String),
    /// The number of the version, in the table's comment.
    Version,
}

impl Schema {
    pub(in super::super) fn of(table: &TableName) -> Self {
        Self {
            table: table.clone(),
            steps: statements(SCHEMA_SQL).iter().filter_map(|statement| Step::of(table, statement)).collect(),
            catalogue: table.render(CATALOGUE_SQL).into(),
        }
    }
}

impl Step {
    fn of(table: &TableName, statement: &str) -> Option<Self> {
        Some(Self { makes: Makes::of(table, statement)?, sql: table.render(statement) })
    }
}

impl Makes {
    /// Read before the statement is rendered: a table's name can be anything.
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

/// The statements of `sql`, without its comments.
fn statements(sql: &str) -> Vec<String> {
    let lines: Vec<&str> = sql.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
    let code = lines.join("\n");
    code.split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_of_the_schema_says_what_it_makes() {
        let table = TableName::default();
        for statement in statements(SCHEMA_SQL) {
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
        let last = statements(SCHEMA_SQL).pop().expect("a statement");
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
