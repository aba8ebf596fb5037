use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::postgres::PgRow;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

/// How long a statement is waited for after its batch was given up. The server ends it sooner by itself, unless it has begun to commit.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Runs one statement, and gives back the connection that it ran on. It owns all that it needs, so that it can outlive its batch.
pub(super) type Running = Pin<Box<dyn Future<Output = (PgConnection, Result<Vec<PgRow>, sqlx::Error>)> + Send>>;

/// A statement that was not answered by its deadline. Until it is, or is given up, its lane has one connection less to make:
/// closing this one would not end the session, if that waits for a commit.
pub(super) struct Late {
    running: Running,
    place: OwnedSemaphorePermit,
    wait: Duration,
}

impl Late {
    /// `open`: how many statements of the lane are not answered yet, this one included.
    pub(super) fn new(running: Running, place: OwnedSemaphorePermit, open: usize) -> Self {
        // Each is waited for longer than those before: while the server hangs, one is given up a minute, and one begun in its place.
        let wait = LONGEST_WAIT * u32::try_from(open).unwrap_or(1);
        Self { running, place, wait }
    }

    /// What the server says in the end.
    pub(super) async fn answer(self) -> Option<Vec<PgRow>> {
        let Self { running, place, wait } = self;
        let (connection, rows) = timeout(wait, running).await.ok()?;
        drop(connection);
        drop(place);
        rows.ok()
    }

    /// Waits for the answer in the background, whatever it is.
    pub(super) fn let_end(self) {
        tokio::spawn(self.answer());
    }
}
