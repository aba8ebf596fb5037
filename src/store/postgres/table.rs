//! The name of the table, and how it gets into SQL.

use std::str::FromStr;

use crate::error::{ConfigError, ConfigErrorKind};

/// The name that all SQL of this module is written with.
const DEFAULT: &str = "webhook_events";

/// The suffix of the sequence's name. The indexes have names of the same kind.
const SEQUENCE_SUFFIX: &str = "_arrivals";

/// The longest suffix of all of them.
const LONGEST_SUFFIX: usize = "_expires_at".len();

/// Postgres cuts longer names off, and two of them would be one.
const LONGEST_NAME: usize = 63;

/// A table's name, parsed into identifiers. It gets into SQL only quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableName {
    schema: Option<String>,
    table: String,
}

impl TableName {
    /// Replaces the name [`DEFAULT`] in `sql`, and those that begin with it, by the names of this table.
    pub(super) fn render(&self, sql: &str) -> String {
        let mut parts = sql.split(DEFAULT);
        let mut rendered = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(part.len());
            let (suffix, rest) = part.split_at(end);
            let name = self.named(suffix);
            // A name in a string literal is looked up when the statement runs.
            rendered.push_str(&if rendered.ends_with('\'') { name.replace('\'', "''") } else { name });
            rendered.push_str(rest);
        }
        rendered
    }

    /// Returns the catalogue's name of an index of this table, by the name that it has with [`DEFAULT`].
    pub(super) fn relation(&self, name: &str) -> Option<String> {
        Some(format!("{}{}", self.table, name.strip_prefix(DEFAULT)?))
    }

    /// Returns the quoted name of the table with a suffix.
    fn named(&self, suffix: &str) -> String {
        let name = quoted(&format!("{}{suffix}", self.table));
        match &self.schema {
            Some(schema) if suffix.is_empty() || suffix == SEQUENCE_SUFFIX => format!("{}.{name}", quoted(schema)),
            // An index is in its table's schema, and is named without it.
            _ => name,
        }
    }
}

impl Default for TableName {
    fn default() -> Self {
        Self { schema: None, table: DEFAULT.to_owned() }
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.named(""))
    }
}

/// Parses `table` or `schema.table`, each as in SQL: folded to lower case, unless it is in double quotes.
impl FromStr for TableName {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        let (first, rest) = identifier(name).map_err(|why| refused(name, why))?;
        let (schema, table) = match rest.strip_prefix('.') {
            None if rest.is_empty() => (None, first),
            None => return Err(refused(name, "there is something after the name")),
            Some(rest) => match identifier(rest).map_err(|why| refused(name, why))? {
                (table, "") => (Some(first), table),
                _ => return Err(refused(name, "there is something after the name")),
            },
        };
        if table.len() + LONGEST_SUFFIX > LONGEST_NAME {
            return Err(refused(name, "the table's name is longer than 52 bytes"));
        }
        Ok(Self { schema, table })
    }
}

/// Parses the identifier that `text` begins with, and returns the rest as well.
fn identifier(text: &str) -> Result<(String, &str), &'static str> {
    let (name, rest) = match text.strip_prefix('"') {
        Some(quoted) => quoted_identifier(quoted)?,
        None => plain_identifier(text)?,
    };
    match name.len() {
        0 => Err("a name is empty"),
        1..=LONGEST_NAME if name.contains('\0') => Err("a name contains NUL"),
        1..=LONGEST_NAME => Ok((name, rest)),
        _ => Err("a name is longer than 63 bytes"),
    }
}

fn plain_identifier(text: &str) -> Result<(String, &str), &'static str> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).unwrap_or(text.len());
    if text.starts_with(|c: char| c.is_ascii_digit() || c == '$') {
        return Err("a name begins with a digit");
    }
    Ok((text[..end].to_ascii_lowercase(), &text[end..]))
}

/// `text` begins after the opening quote.
fn quoted_identifier(text: &str) -> Result<(String, &str), &'static str> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let (before, after) = rest.split_once('"').ok_or("a quote is not closed")?;
        name.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                name.push('"');
                rest = after;
            }
            None => return Ok((name, after)),
        }
    }
}

pub(super) fn quoted(identifier: &str) -> String {
    format!("\"{}\"", identifier.replace('"', "\"\""))
}

fn refused(name: &str, why: &str) -> ConfigError {
    let message = format!(
        "{name:?} is not the name of a table: {why}; write table or schema.table, with anything but ASCII letters, \
         digits and underscores in double quotes"
    );
    ConfigError::new(ConfigErrorKind::Name, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(name: &str) -> String {
        name.parse::<TableName>().expect("a name").to_string()
    }

    #[test]
    fn names_are_read_as_sql_reads_them() {
        for (name, expected) in [
            ("events", r#""events""#),
            ("Events", r#""events""#),
            (r#""Events""#, r#""Events""#),
            ("app.events", r#""app"."events""#),
            (r#""a.b"."c""d""#, r#""a.b"."c""d""#),
            (r#""we""ird; drop""#, r#""we""ird; drop""#),
            ("_e$1", r#""_e$1""#),
        ] {
            assert_eq!(rendered(name), expected, "{name}");
        }
    }

    #[test]
    fn invalid_names_are_refused() {
        let long = "x".repeat(53);
        for name in
            ["", ".", "a.", ".a", "a.b.c", "a b", "a;b", "a\"b", "\"a", "\"\"", "1a", "a-b", "é", "\"a\0\"", &long]
        {
            let refused = name.parse::<TableName>().expect_err(name);
            assert_eq!(refused.kind(), ConfigErrorKind::Name, "{name}");
        }
    }

    #[test]
    fn sql_is_rendered_in_one_pass() {
        let table: TableName = "hooks.my_webhook_events".parse().expect("a name");
        let sql = "CREATE INDEX webhook_events_expires_at ON webhook_events (x)";
        let expected = r#"CREATE INDEX "my_webhook_events_expires_at" ON "hooks"."my_webhook_events" (x)"#;
        assert_eq!(table.render(sql), expected);
    }

    #[test]
    fn names_in_string_literals_are_quoted_twice() {
        let table: TableName = r#"hooks."it's""#.parse().expect("a name");
        let sql = "SELECT nextval('webhook_events_arrivals'), 'webhook_events'::regclass FROM webhook_events";
        let expected = r#"SELECT nextval('"hooks"."it''s_arrivals"'), '"hooks"."it''s"'::regclass FROM "hooks"."it's""#;
        assert_eq!(table.render(sql), expected);
    }

    #[test]
    fn no_name_of_the_schema_is_longer_than_there_is_room_for() {
        let suffixes = super::super::SCHEMA_SQL
            .split(DEFAULT)
            .skip(1)
            .map(|part| part.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(part.len()));
        assert_eq!(suffixes.max(), Some(LONGEST_SUFFIX));
    }
}
