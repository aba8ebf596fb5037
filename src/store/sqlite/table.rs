use std::fmt;

use crate::key::LONGEST_PART;
use crate::{ConfigError, ConfigErrorKind};

/// A table's name. Statements contain it quoted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Table(Box<str>);

/// The name with a suffix, for its indexes and triggers.
pub(super) struct Suffixed<'a>(&'a Table, &'a str);

impl Table {
    pub(super) const DEFAULT: &'static str = "webhook_events";

    pub(super) fn parse(name: &str) -> Result<Self, ConfigError> {
        let refuse = |why: &str| {
            Err(ConfigError::new(ConfigErrorKind::Name, format!("{name:?} cannot be the name of a table: {why}")))
        };
        if name.is_empty() || name.len() > LONGEST_PART {
            return refuse("it has 1 to 255 bytes");
        }
        if name.contains(char::is_control) {
            return refuse("no control characters");
        }
        if name.contains('.') {
            return refuse("SQLite has no schemas, only files: leave the part before the dot out");
        }
        if name.get(..7).is_some_and(|start| start.eq_ignore_ascii_case("sqlite_")) {
            return refuse("names that begin with sqlite_ are SQLite's own");
        }
        Ok(Self(name.into()))
    }

    /// The name as it was given, not quoted.
    pub(super) fn name(&self) -> &str {
        &self.0
    }

    pub(super) fn suffixed<'a>(&'a self, suffix: &'a str) -> Suffixed<'a> {
        Suffixed(self, suffix)
    }
}

impl Default for Table {
    fn default() -> Self {
        Self(Self::DEFAULT.into())
    }
}

/// Writes the name quoted, as it stands in a statement.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.suffixed("").fmt(f)
    }
}

impl fmt::Display for Suffixed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}{}\"", self.0.0.replace('"', "\"\""), self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_and_quotes_doubled() {
        for (name, quoted) in [
            ("webhook_events", "\"webhook_events\""),
            ("select", "\"select\""),
            ("x\"; drop table y; --", "\"x\"\"; drop table y; --\""),
            ("événements 🦀", "\"événements 🦀\""),
        ] {
            assert_eq!(Table::parse(name).expect("a name").to_string(), quoted);
        }
        assert_eq!(Table::default().suffixed("_idx").to_string(), "\"webhook_events_idx\"");
    }

    #[test]
    fn what_cannot_be_a_table_says_why() {
        let long = "x".repeat(256);
        for (name, why) in [
            ("", "1 to 255"),
            (long.as_str(), "1 to 255"),
            ("a\0b", "control"),
            ("app.events", "schemas"),
            ("SQLite_x", "SQLite's own"),
        ] {
            let error = Table::parse(name).expect_err(name);
            assert_eq!(error.kind(), ConfigErrorKind::Name);
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
