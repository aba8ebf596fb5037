//! Leases.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use tokio::time::Instant;

use super::connection::DedicatedConnection;
use super::connector::Connector;
use super::fault::Fault;
use super::housekeeping::StalledOrders;
use super::lost_leases::{DroppedLease, LostLeases};
use super::pick::{Picker, Scan};
use super::scan_start::{LONGEST_SCAN, ScanStart, ScanStartUpdater};
use super::settle_batch::SettleBatch;
use super::settlement::SettleItem;
use super::statements::{Statement, Statements, statement};
use super::values::{MOST_BYTES, bigint, event_key, fingerprint, milliseconds, stored_request, token};
use super::wake::Promoter;
use crate::lock::lock;
use crate::store::batcher::{Answers, BatchHandler, Batcher};
use crate::store::in_transit::InTransit;
use crate::store::queue::{LAPSED, LeaseRequest, Leased, OwnedLeaseRequest, UNREADABLE};
use crate::store::{ClaimToken, StoreError};
use crate::telemetry;

/// How many events one statement leases.
const LARGEST_LEASE: usize = 512;

/// No lease waits for a row. But two workers that lease two events of one order wait for each other, and one of them
/// fails.
const LOCK_TIMEOUT: Duration = Duration::from_millis(100);

/// How often a lease is repeated after it failed on a row that another worker leased.
const RETRIES: usize = 8;

/// A lease goes in the order of the index, and no further than there is something to lease, however many events wait. A
/// lease that the server forgets in a crash is a lapsed one: the next worker's token fences it. So the commit does not
/// wait for the disk.
const SETTINGS: &str = "SET enable_bitmapscan = off; SET enable_sort = off; SET synchronous_commit = off";

/// The pauses between two tries, if other workers have leased everything that was picked.
const PAUSES: [Duration; 4] = {
    let ms = Duration::from_millis;
    [ms(1), ms(2), ms(5), ms(10)]
};

/// Leases events to workers, on a connection of its own.
pub(super) struct LeaseBatch {
    connection: DedicatedConnection,
    lease_first_due_sql: Arc<str>,
    lease_picked_sql: Arc<str>,
    picker: Picker,
    stalled_orders: StalledOrders,
    scan_start: ScanStartUpdater,
    lost_leases: LostLeases,
    settlements: Batcher<SettleBatch>,
}

impl LeaseBatch {
    pub(super) fn new(
        connector: &Connector,
        statements: &Statements,
        settlements: &Batcher<SettleBatch>,
        scan_start: &Arc<ScanStart>,
        promoter: &Promoter,
    ) -> Self {
        let connect = |name, connector: &Connector| {
            DedicatedConnection::new(name, connector, LOCK_TIMEOUT).with_settings(SETTINGS)
        };
        let for_searches = Connector { deadline: LONGEST_SCAN, ..connector.clone() };
        let search_connection = Arc::new(connect("tower-webhook searches", &for_searches));
        Self {
            connection: connect("tower-webhook leases", connector),
            lease_first_due_sql: statements.lease("{first_due}"),
            lease_picked_sql: statements.lease("{picked}"),
            picker: Picker::new(statements),
            stalled_orders: StalledOrders::new(statements, promoter.clone()),
            scan_start: ScanStartUpdater::new(scan_start.clone(), statements, search_connection.clone()),
            lost_leases: LostLeases::new(search_connection, statements, settlements.clone()),
            settlements: settlements.clone(),
        }
    }

    async fn lease(&self, request: &LeaseRequest<'_>) -> Result<InTransit<DroppedLease>, Fault> {
        let (connection, until) = (&self.connection, self.connection.deadline());
        self.stalled_orders.check(connection, until).await;
        self.scan_start.update(connection, until).await;
        let mut retries = 0;
        loop {
            let scan = Scan { connection, start: self.scan_start.scan_start().get(), until };
            let leased = match request.is_of_any_kind() {
                true => self.lease_first_due(&scan, request).await,
                false => self.lease_picked(&scan, request).await,
            };
            match leased {
                // Another worker has leased an event of the same order, which can be seen now.
                Err(fault) if fault.may_pass_with_fewer_rows() && retries < RETRIES => retries += 1,
                Err(fault) if fault.is_late() => {
                    self.scan_start.scan_start().lease_timed_out();
                    return Err(fault);
                }
                leased => return leased,
            }
        }
    }

    /// Leases the events that have been due the longest.
    async fn lease_first_due(
        &self,
        scan: &Scan<'_>,
        request: &LeaseRequest<'_>,
    ) -> Result<InTransit<DroppedLease>, Fault> {
        let query =
            |tokens: &[ClaimToken]| bind(&self.lease_first_due_sql, scan, request, tokens).bind(bigint(request.limit));
        self.lease_readable(scan, request, query).await
    }

    /// Leases the events that have been due the longest, of the kinds that the worker has room for.
    async fn lease_picked(
        &self,
        scan: &Scan<'_>,
        request: &LeaseRequest<'_>,
    ) -> Result<InTransit<DroppedLease>, Fault> {
        for pause in PAUSES {
            let keys = self.picker.pick(scan, request).await?;
            if keys.is_empty() {
                break;
            }
            let query = |tokens: &[ClaimToken]| bind(&self.lease_picked_sql, scan, request, tokens).bind(keys.clone());
            let leased = self.lease_readable(scan, request, query).await?;
            if !leased.is_empty() {
                return Ok(leased);
            }
            // Other workers have picked the same events, and were faster.
            tokio::time::sleep(pause).await;
        }
        Ok(self.in_transit(Vec::new(), request, Instant::now()))
    }

    /// Leases events that can be read, unless there are none.
    async fn lease_readable(
        &self,
        scan: &Scan<'_>,
        request: &LeaseRequest<'_>,
        query: impl Fn(&[ClaimToken]) -> Statement,
    ) -> Result<InTransit<DroppedLease>, Fault> {
        loop {
            let asked_at = Instant::now();
            let rows = self.run(scan, request, &query).await?;
            let events = self.read_all(&rows);
            // A worker that gets no event takes the queue for empty. An event that was leased just now is not leased
            // again.
            if !events.is_empty() || rows.is_empty() {
                return Ok(self.in_transit(events, request, asked_at));
            }
        }
    }

    /// Runs a statement that leases, under new tokens each time: if one takes effect whose answer does not come, its
    /// events can be told from those of the next.
    async fn run(
        &self,
        scan: &Scan<'_>,
        request: &LeaseRequest<'_>,
        query: impl Fn(&[ClaimToken]) -> Statement,
    ) -> Result<Vec<PgRow>, Fault> {
        let (asked_at, tries) = (Instant::now(), Mutex::new(Vec::new()));
        let answer = scan
            .fetch_all(|| {
                let tokens: Vec<_> = (0..request.limit).map(|_| ClaimToken::random()).collect();
                let query = query(&tokens);
                lock(&tries).push(tokens);
                query
            })
            .await;
        let mut tries = std::mem::take(&mut *lock(&tries));
        let is_known = match &answer {
            Ok(_) => true,
            // The server has refused the last try.
            Err(fault) => fault.may_pass_with_fewer_rows(),
        };
        if is_known {
            tries.pop();
        }
        for tokens in tries {
            self.lost_leases.search_later(tokens, asked_at, request.lease);
        }
        answer
    }

    /// Reads the leased events, in their order. A row that this store never wrote is reported and buried: its lease
    /// would lapse again and again. If it cannot be buried now, the next lease that meets it tries again.
    fn read_all(&self, rows: &[PgRow]) -> Vec<Leased> {
        let mut all: Vec<(i64, Leased)> = Vec::with_capacity(rows.len());
        for row in rows {
            match read(row) {
                Ok(leased) => all.push(leased),
                Err(error) => {
                    let key = row.try_get("key").unwrap_or_default();
                    telemetry::event_unreadable(key, &error);
                    if let Ok(token) = token(row, "token") {
                        self.settlements.tell(SettleItem::bury(key, token, UNREADABLE));
                    }
                }
            }
        }
        all.sort_unstable_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, leased)| leased).collect()
    }

    fn in_transit(
        &self,
        events: Vec<Leased>,
        request: &LeaseRequest<'_>,
        asked_at: Instant,
    ) -> InTransit<DroppedLease> {
        let lost_leases = self.lost_leases.clone();
        InTransit::new(events, DroppedLease { lost_leases, asked_at, lease: request.lease })
    }
}

impl BatchHandler for LeaseBatch {
    type Question = OwnedLeaseRequest;
    type Answer = InTransit<DroppedLease>;

    async fn answer(&self, batch: &[OwnedLeaseRequest]) -> Answers<Self::Answer> {
        let mut answers = Vec::with_capacity(batch.len());
        for request in batch {
            let mut request = request.borrowed();
            request.limit = request.limit.min(LARGEST_LEASE);
            answers.push(self.lease(&request).await.map_err(StoreError::from));
        }
        answers
    }

    /// Does nothing: dropping the answer releases its events.
    fn on_abandoned(&self, _: OwnedLeaseRequest, _: Self::Answer) {}
}

/// Binds the parameters that both statements share which lease events.
fn bind(sql: &Arc<str>, scan: &Scan<'_>, request: &LeaseRequest<'_>, tokens: &[ClaimToken]) -> Statement {
    statement(sql)
        .bind(scan.start)
        .bind(tokens.iter().map(|token| token.as_bytes().to_vec()).collect::<Vec<_>>())
        .bind(milliseconds(request.lease))
        .bind(LAPSED)
        .bind(bigint(MOST_BYTES))
}

fn read(row: &PgRow) -> Result<(i64, Leased), sqlx::Error> {
    let mut leased = Leased::new(event_key(row)?, token(row, "token")?, stored_request(row)?);
    leased.attempt = row.try_get::<i32, _>("attempts")?.unsigned_abs();
    leased.event_type = row.try_get::<Option<String>, _>("event_type")?.map(Into::into);
    leased.fingerprint = fingerprint(row, "fingerprint")?;
    (leased.started, leased.superseded) = (row.try_get("started")?, row.try_get("superseded")?);
    Ok((row.try_get("n")?, leased))
}
