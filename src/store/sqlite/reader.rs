use sqlx::Executor;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::Mutex;

use super::fault::{Fault, is_sound};
use super::statements::Statement;
use super::writer::Writer;

/// Looks into the inbox, on a connection of its own: in WAL mode who reads waits for nobody who writes, and the other way round.
#[derive(Default)]
pub(super) struct Reader {
    /// None before the first look, and while one is under way.
    connection: Mutex<Option<SqliteConnection>>,
}

impl Reader {
    pub(super) async fn rows(&self, writer: &Writer, statement: Statement) -> Result<Vec<SqliteRow>, Fault> {
        let mut kept = self.connection.lock().await;
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => writer.database.connect(&writer.statements).await?,
        };
        let rows = connection.fetch_all(statement).await.map_err(Fault::from);
        if is_sound(&rows) {
            *kept = Some(connection);
        }
        rows
    }
}
