//! The check of the server and of the way to it, at start-up.

use std::time::{Duration, SystemTime};

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, Row as _};
use tokio::time::timeout;

use super::PostgresStore;
use super::connector::Connector;
use super::fault::Fault;
use super::schema::Schema;
use super::statements::statement;
use crate::clock::unix_millis;
use crate::store::{StoreError, trial};
use crate::telemetry;

/// How long the queries about the server may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// From how many seconds on the clocks are warned about. The shortest tolerance of a provider is five.
const CLOCK_TOLERANCE_S: u64 = 5;

const NAME: &str = "tower-webhook checks";

/// How often two connections are looked at to see whether a pooler gives them other sessions.
const POOLER_ROUNDS: usize = 8;

const DIRECT_IS_POOLED: &str = "the options of PostgresStoreBuilder::direct lead to a pooler, too: workers are not \
    woken, and migrate may leave its settings on sessions of others; name the server itself";

/// The findings of [`PostgresStore::check`](super::PostgresStore::check).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PostgresReport {
    /// The version that the server reports.
    pub server_version: String,
    /// Whether a pooler gives each transaction another session.
    pub behind_pooler: bool,
    /// Whether the table is complete for this release.
    pub is_migrated: bool,
    /// The version of the table's schema; `None` if the table is missing. A later release may have raised it.
    pub schema_version: Option<u32>,
    /// By how many milliseconds the server's clock is ahead of this machine's, at least; negative if it is behind.
    pub clock_ahead_ms: i64,
    /// Reasons why the store does not work, or may forget events, and how to remove them. Empty if there are none.
    pub warnings: Vec<String>,
}

impl PostgresStore {
    /// Claims, renews, releases and deletes an event of its own to see that the store works, and checks whether the
    /// server and the way to it let it go on working. Call it once, at start-up, after [`migrate`](Self::migrate).
    ///
    /// Warnings are in the report, and are logged to `tracing`. Whether they are reason enough not to start is the
    /// caller's decision:
    ///
    /// ```no_run
    /// # async fn start(store: tower_webhook::store::PostgresStore) -> Result<(), Box<dyn std::error::Error>> {
    /// let report = store.check().await?;
    /// if !report.warnings.is_empty() {
    ///     return Err(report.warnings.join("; ").into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Behind a pooler that the store was not [told of](super::PostgresStoreBuilder::pooled), no event is claimed: the
    /// settings of the store's connections would stay on those of others.
    ///
    /// # Errors
    ///
    /// If the server cannot be reached, the table is missing, or the role lacks a right to it.
    pub async fn check(&self) -> Result<PostgresReport, StoreError> {
        let report = timeout(DEADLINE, self.report()).await.unwrap_or_else(|_| Err(Fault::timed_out()));
        let report = report?;
        report.warnings.iter().for_each(|warning| telemetry::postgres_warned(warning));
        if self.shared.connector.pooled || !report.behind_pooler {
            self.try_out().await?;
        }
        Ok(report)
    }

    async fn report(&self) -> Result<PostgresReport, Fault> {
        let (connector, statements) = (&self.shared.connector, &self.shared.statements);
        let mut pair = [connector.options(NAME).connect().await?, connector.options(NAME).connect().await?];
        let behind_pooler = is_pooled(&mut pair).await?;
        let [mut connection, other] = pair;
        let direct_is_pooled = match &connector.direct {
            Some(direct) => is_pooled(&mut [direct.connect().await?, direct.connect().await?]).await?,
            None => false,
        };
        let fetch = |sql: &str| sqlx::raw_sql(AssertSqlSafe(sql.to_owned()));
        let asked = unix_millis(SystemTime::now());
        let settings = fetch(&statements.text("server_settings")).fetch_one(&mut connection).await?;
        let clock_ahead_ms = ahead(settings.try_get("now_ms")?, asked, unix_millis(SystemTime::now()));
        let catalogue = fetch(&statements.text("catalogue")).fetch_one(&mut connection).await?;
        let fault_of_table = self.shared.schema.fault_of(&catalogue)?;
        let report = PostgresReport {
            server_version: settings.try_get("version")?,
            behind_pooler,
            is_migrated: fault_of_table.is_none(),
            schema_version: Schema::version_of(&catalogue)?,
            clock_ahead_ms,
            warnings: Vec::new(),
        };
        let mut warnings = report.warnings_of(&settings, connector)?;
        warnings.extend(fault_of_table);
        warnings.extend(direct_is_pooled.then(|| DIRECT_IS_POOLED.to_owned()));
        for connection in [connection, other] {
            // The report is complete, whether the server receives this or not.
            let _ = connection.close().await;
        }
        Ok(PostgresReport { warnings, ..report })
    }

    /// Tries every right to the table: claims, renews, releases and deletes a test event, under an id that no sender
    /// can use.
    async fn try_out(&self) -> Result<(), StoreError> {
        let key = trial::claim_and_release(self).await?;
        let delete = statement(&self.shared.statements.text("delete_key")).bind(key.as_str());
        self.shared.connector.fetch_all(delete).await.map_err(Fault::from)?;
        Ok(())
    }
}

/// Returns whether a connection changes its backend process, or shares it with the other one. Each transaction may then
/// have another session.
///
/// In each round, both connections have a transaction open at the same time. A pooler then has two sessions to give
/// back, and gives the first connection the one that was given back last, which was the other connection's; or any, if
/// others use the pooler meanwhile.
async fn is_pooled([one, other]: &mut [PgConnection; 2]) -> Result<bool, sqlx::Error> {
    let mut seen = None;
    for _ in 0..POOLER_ROUNDS {
        let pids = [begin(one).await?, begin(other).await?];
        for connection in [&mut *one, &mut *other] {
            sqlx::raw_sql("COMMIT").execute(connection).await?;
        }
        if pids[0] == pids[1] || *seen.get_or_insert(pids) != pids {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Begins a transaction, and returns the backend process that runs it.
async fn begin(connection: &mut PgConnection) -> Result<i32, sqlx::Error> {
    let row = sqlx::raw_sql("BEGIN; SELECT pg_backend_pid()").fetch_one(connection).await?;
    row.try_get(0)
}

impl PostgresReport {
    fn warnings_of(&self, settings: &PgRow, connector: &Connector) -> Result<Vec<String>, sqlx::Error> {
        let is_off = |setting| settings.try_get::<String, _>(setting).map(|value| value == "off");
        let found = [
            (self.behind_pooler && !connector.pooled).then_some(
                "a pooler gives each transaction another session, and what the store sets and prepares stays on \
                 sessions of others: build the store with PostgresStoreBuilder::pooled, or connect it to the server \
                 itself",
            ),
            (settings.try_get::<i32, _>("version_number")? < 140_000)
                .then_some("the server is older than PostgreSQL 14, which the store's statements need: upgrade it"),
            settings
                .try_get::<bool, _>("is_standby")?
                .then_some("the server is a standby and refuses every claim: connect to the primary"),
            is_off("synchronous_commit")?.then_some(
                "synchronous_commit is off: a crash of the server forgets the last claims and completions, and events \
                 run again; set it to on for this role",
            ),
            is_off("fsync")?.then_some("fsync is off: a power loss may destroy the whole database; set it to on"),
            (!settings.try_get::<bool, _>("may_number")?).then_some(
                "the role may not use the table's sequence, and the inbox accepts nothing: grant USAGE on it",
            ),
        ];
        Ok(found.into_iter().flatten().map(str::to_owned).chain(self.clock_warning()).collect())
    }

    fn clock_warning(&self) -> Option<String> {
        let (seconds, direction) =
            (self.clock_ahead_ms.unsigned_abs() / 1000, if self.clock_ahead_ms > 0 { "ahead of" } else { "behind" });
        (seconds >= CLOCK_TOLERANCE_S).then(|| {
            format!(
                "the server's clock is {seconds} s {direction} this machine's: one of them is wrong, and signatures may be \
                 refused as stale or accepted for too long; synchronise both"
            )
        })
    }
}

/// By how much a clock is ahead, or behind, that showed `now` some time between `asked` and `answered`, all in
/// milliseconds. Zero if it may be right.
fn ahead(now: i64, asked: i64, answered: i64) -> i64 {
    now - now.clamp(asked, answered.max(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_is_judged_by_the_time_of_question_and_answer() {
        for (now, ahead_by) in [(100, 0), (150, 0), (200, 0), (201, 1), (99, -1), (60_200, 60_000), (-900, -1_000)] {
            assert_eq!(ahead(now, 100, 200), ahead_by, "{now}");
        }
        // This machine's clock was set back in between.
        assert_eq!(ahead(150, 200, 100), -50);
    }
}
