use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};
use tokio::time::Instant;

use super::bound::Bound;
use super::lane::Lane;
use super::promotion::Promotion;
use super::schema::Statements;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(1);

/// How many orders are looked at each time.
const ORDERS: i64 = 1_000;

/// Looks every now and then for events that are held up behind nothing: whoever was to let them go on has crashed before.
pub(super) struct HeldUp {
    sql: Arc<str>,
    promotion: Promotion,
    round: Mutex<Round>,
}

struct Round {
    due: Instant,
    /// The order that was looked at last.
    last: String,
}

impl HeldUp {
    pub(super) fn new(statements: &Statements, bound: Arc<Bound>) -> Self {
        let round = Mutex::new(Round { due: Instant::now(), last: String::new() });
        Self { sql: statements.held_up.clone(), promotion: Promotion::new(statements, bound), round }
    }

    /// Looks at some orders, if it is time.
    pub(super) async fn look(&self, lane: &Lane, until: Instant) {
        let Some(last) = self.next_round() else { return };
        let query = || sqlx::query(AssertSqlSafe(self.sql.clone())).bind(&*last).bind(ORDERS);
        // If it fails, whoever leases is told in a moment.
        let Ok(rows) = lane.run_until(until, query).await else { return };
        let orders: Vec<&str> = rows.iter().filter_map(|row| row.try_get(0).ok()).collect();
        self.promotion.run(lane, &orders, until).await;
        if let Some(order) = orders.last()
            && i64::try_from(orders.len()).is_ok_and(|seen| seen == ORDERS)
        {
            self.round.lock().unwrap_or_else(PoisonError::into_inner).last = (*order).to_owned();
        }
    }

    /// Behind which order to look now.
    fn next_round(&self) -> Option<String> {
        let (mut round, now) = (self.round.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        if now < round.due {
            return None;
        }
        round.due = now + EVERY;
        Some(std::mem::take(&mut round.last))
    }
}
