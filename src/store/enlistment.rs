use std::sync::Arc;

/// What a store lends its claims, so that a handler can complete one inside of a transaction of its own: effect and completion
/// are committed together, or neither is. See [`WebhookEvent::enlist`](crate::WebhookEvent::enlist).
///
/// The statement turns a running claim into a completed record, and changes no row if the token does not hold the claim. Its
/// parameters, in this order: the key (text), the token (16 bytes), the summary (text), the retention in milliseconds (64 bits).
#[derive(Clone, Debug)]
pub struct Enlistment {
    dialect: Dialect,
    sql: Arc<str>,
    prepared: bool,
}

/// Whose SQL a statement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Dialect {
    /// PostgreSQL's, with `$1`.
    Postgres,
    /// SQLite's, with `?1`.
    Sqlite,
}

impl Enlistment {
    /// Lends this statement.
    pub fn new(dialect: Dialect, sql: impl Into<Arc<str>>) -> Self {
        Self { dialect, sql: sql.into(), prepared: true }
    }

    /// The same statement, which no driver is to keep prepared on the handler's connection: behind a transaction pooler, the
    /// session that knows it would be somebody else's in a moment.
    #[must_use]
    pub fn unprepared(mut self) -> Self {
        self.prepared = false;
        self
    }

    /// Whether a driver may keep the statement prepared.
    #[must_use]
    pub const fn is_prepared(&self) -> bool {
        self.prepared
    }

    /// Which database can run it.
    #[must_use]
    pub const fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The statement.
    #[must_use]
    pub fn sql(&self) -> &str {
        &self.sql
    }
}
