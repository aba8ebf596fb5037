/// What [`PostgresStore::check`](super::PostgresStore::check) found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresReport {
    /// As the server tells it.
    pub server_version: String,
    /// Whether a pooler gives each transaction another session.
    pub behind_pooler: bool,
    /// Whether the table is complete for this release.
    pub is_migrated: bool,
    /// What keeps the store from working, or has it forget, and what to do about it. Empty, if nothing was found.
    pub warnings: Vec<String>,
}
