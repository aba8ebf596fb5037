use sqlx::Executor;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::Mutex;

use super::fault::{Fault, is_sound};
use super::leasing::Wanted;
use super::picking;
use super::statements::Statement;
use super::writer::Writer;

/// Looks into the inbox, on a connection of its own: in WAL mode who reads waits for nobody who writes, and the other way round.
#[derive(Default)]
pub(super) struct Reader {
    /// None before the first look, and while one is under way.
    connection: Mutex<Option<SqliteConnection>>,
}

impl Reader {
    /// Whether there is anything that `wanted` could get.
    pub(super) async fn is_due(&self, writer: &Writer, wanted: &Wanted) -> Result<bool, Fault> {
        let mut kept = self.connection.lock().await;
        let mut connection = connection(&mut kept, writer).await?;
        let pick = &writer.statements.leases.pick;
        let picked = picking::pick(&mut connection, pick, &wanted.at_most_one(), &writer.times.now()).await;
        if is_sound(&picked) {
            *kept = Some(connection);
        }
        Ok(!picked?.is_empty())
    }

    pub(super) async fn rows(&self, writer: &Writer, statement: Statement) -> Result<Vec<SqliteRow>, Fault> {
        let mut kept = self.connection.lock().await;
        let mut connection = connection(&mut kept, writer).await?;
        let rows = connection.fetch_all(statement).await.map_err(Fault::from);
        if is_sound(&rows) {
            *kept = Some(connection);
        }
        rows
    }
}

async fn connection(kept: &mut Option<SqliteConnection>, writer: &Writer) -> Result<SqliteConnection, Fault> {
    match kept.take() {
        Some(connection) => Ok(connection),
        None => writer.database.connect(&writer.statements).await,
    }
}
