//! The release before versions were recorded, as far as its instances work beside those of this release during a deploy: its
//! statements, its settings, and what it made of the answers.

use std::time::Duration;

use sqlx::postgres::{PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, Executor as _, PgPool, Row};
use tower_webhook::EventKey;
use tower_webhook::queue::{LAPSED, StoredRequest};
use tower_webhook::store::{
    Claim, ClaimRequest, ClaimToken, Dialect, Ending, Enlistment, Hold, Store, StoreError, StoreErrorKind, StoreFuture,
};

use crate::support::servers::postgres::PostgresServer;

const CLAIM: &str = include_str!("../data/postgres_statements_1/claim.sql");
const TAKEOVER: &str = include_str!("../data/postgres_statements_1/takeover.sql");
const SETTLE: &str = include_str!("../data/postgres_statements_1/settle.sql");
const LOOK: &str = include_str!("../data/postgres_statements_1/look.sql");
const COMPLETE: &str = include_str!("../data/postgres_statements_1/complete.sql");
const ACCEPT: &str = include_str!("../data/postgres_statements_1/accept.sql");
const ACCEPT_TAKEOVER: &str = include_str!("../data/postgres_statements_1/accept_takeover.sql");
const LEASE: &str = include_str!("../data/postgres_statements_1/lease.sql");
const PROMOTE: &str = include_str!("../data/postgres_statements_1/promote.sql");

/// The settings of its connections.
const SETTINGS: &str = "SET plan_cache_mode = force_generic_plan;
    SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off;
    SET statement_timeout = 1500";

/// How long a row or a table that another transaction has in hand is asked for.
const PAUSES: [u64; 7] = [1, 2, 5, 10, 25, 50, 100];

const RELEASED_FOR: Duration = Duration::from_secs(24 * 3600);

/// A store of that release. What it asks is not batched.
#[derive(Clone)]
pub(crate) struct Version1 {
    claims: PgPool,
    settles: PgPool,
    table: String,
}

/// What one statement said, unless another transaction was in the way.
type Said<T> = Result<Option<T>, StoreError>;

/// What it leased.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeasedEvent {
    pub(crate) key: EventKey,
    pub(crate) token: ClaimToken,
    pub(crate) attempts: i32,
    pub(crate) body: Vec<u8>,
}

impl Version1 {
    pub(crate) fn on(server: &PostgresServer, table: &str) -> Self {
        let pool = |name: &str, lock_timeout: &str| {
            let settings = format!("{SETTINGS}; SET lock_timeout = {lock_timeout}");
            let options = PgPoolOptions::new().max_connections(4).after_connect(move |connection, _| {
                let settings = settings.clone();
                Box::pin(async move { connection.execute(AssertSqlSafe(settings)).await.map(|_| ()) })
            });
            options.connect_lazy_with(server.options().application_name(name))
        };
        let (claims, settles) = (pool("version 1 claims", "100"), pool("version 1 settles", "0"));
        Self { claims, settles, table: table.to_owned() }
    }

    fn about(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("webhook_events", &self.table))
    }

    async fn try_claim(&self, claim: &ClaimRequest<'_>) -> Said<Claim> {
        let ask = |sql: &str| {
            sqlx::query(self.about(sql))
                .bind(vec![claim.key.as_str().to_owned()])
                .bind(vec![claim.token.as_bytes().to_vec()])
                .bind(vec![milliseconds(claim.lease)])
                .bind(vec![claim.fingerprint.as_u64().cast_signed()])
                .bind(vec![claim.event_type.map(str::to_owned)])
        };
        let Some(rows) = unless_blocked(ask(CLAIM).fetch_all(&self.claims).await)? else { return Ok(None) };
        let Some(row) = rows.first() else { return Ok(None) };
        match seen(row, claim) {
            Seen::Fresh => Ok(Some(Claim::Fresh { attempt: Some(1) })),
            Seen::Answer(answer) => Ok(answer),
            Seen::Free => {
                let Some(rows) = unless_blocked(ask(TAKEOVER).fetch_all(&self.claims).await)? else { return Ok(None) };
                let attempt = rows.first().map(|row| row.get::<i32, _>("attempts").unsigned_abs());
                Ok(attempt.map(|attempt| Claim::Fresh { attempt: Some(attempt) }))
            }
        }
    }

    /// What its `accept` did.
    pub(crate) async fn accept(&self, claim: &ClaimRequest<'_>, stored_request: &StoredRequest) -> Claim {
        let order = stored_request.order.as_ref();
        let ask = |sql: &str| {
            sqlx::query(self.about(sql))
                .bind(vec![claim.key.as_str().to_owned()])
                .bind(vec![claim.token.as_bytes().to_vec()])
                .bind(vec![claim.fingerprint.as_u64().cast_signed()])
                .bind(vec![claim.event_type.map(str::to_owned)])
                .bind(vec![claim.key.endpoint().to_owned()])
                .bind(vec![1_700_000_000_123_i64])
                .bind(vec![stored_request.head.to_vec()])
                .bind(vec![stored_request.body.to_vec()])
                .bind(vec![order.map(|order| order.key.to_string())])
                .bind(vec![order.and_then(|order| order.sequence)])
        };
        let rows = ask(ACCEPT).fetch_all(&self.claims).await.expect("a statement that works");
        let claim = match seen(&rows[0], claim) {
            Seen::Fresh => Claim::Fresh { attempt: None },
            Seen::Answer(answer) => return answer.expect("nobody else's"),
            Seen::Free => {
                let rows = ask(ACCEPT_TAKEOVER).fetch_all(&self.claims).await.expect("a statement that works");
                assert_eq!(rows.len(), 1);
                Claim::Fresh { attempt: None }
            }
        };
        if let Some(order) = order {
            self.promote(&order.key).await;
        }
        claim
    }

    /// What its workers leased.
    pub(crate) async fn lease(&self, limit: usize, lease: Duration) -> Vec<LeasedEvent> {
        let tokens: Vec<_> = (0..limit).map(|_| ClaimToken::random().as_bytes().to_vec()).collect();
        let none = Vec::<String>::new;
        let rows = sqlx::query(self.about(LEASE))
            .bind(limit as i64)
            .bind(tokens)
            .bind(milliseconds(lease))
            .bind(none())
            .bind(none())
            .bind(none())
            .bind(LAPSED)
            .fetch_all(&self.claims);
        let mut rows = rows.await.expect("a statement that works");
        rows.sort_by_key(|row| row.get::<i64, _>("n"));
        let read = |row: &PgRow| LeasedEvent {
            key: EventKey::parse(row.get("key")).expect("a key"),
            token: ClaimToken::from_bytes(row.get("token")),
            attempts: row.get("attempts"),
            body: row.get("body"),
        };
        rows.iter().map(read).collect()
    }

    async fn promote(&self, order: &str) {
        let promoted = sqlx::query(self.about(PROMOTE)).bind(vec![order.to_owned()]).execute(&self.settles).await;
        promoted.expect("a statement that works");
    }

    async fn try_settle(&self, claim: &ClaimRequest<'_>, settle: &Settlement<'_>) -> Said<Hold> {
        let key = vec![claim.key.as_str().to_owned()];
        let token = vec![claim.token.as_bytes().to_vec()];
        let rows = sqlx::query(self.about(SETTLE))
            .bind(key.clone())
            .bind(token.clone())
            .bind(vec![settle.becomes])
            .bind(vec![settle.span_ms])
            .bind(vec![settle.summary])
            .bind(vec![settle.failure])
            .bind(vec![None::<i64>])
            .fetch_all(&self.settles);
        let Some(rows) = unless_blocked(rows.await)? else { return Ok(None) };
        if let Some(row) = rows.first() {
            if let Some(order) = row.get::<Option<String>, _>("leaves") {
                self.promote(&order).await;
            }
            return Ok(Some(Hold::Held));
        }
        let rows = sqlx::query(self.about(LOOK)).bind(key).bind(token).fetch_all(&self.settles);
        let Some(rows) = unless_blocked(rows.await)? else { return Ok(None) };
        let Some(row) = rows.first() else { return Ok(Some(Hold::Lost)) };
        let (own, state, queued): (bool, &str, bool) = (row.get("own"), row.get("state"), row.get("queued"));
        Ok(match state {
            _ if settle.is_of_an_inbox() && !queued => Some(Hold::Lost),
            "running" if own => None,
            _ if own && settle.is_done_by(state) => Some(Hold::Held),
            _ => Some(Hold::Lost),
        })
    }

    async fn settle(
        &self,
        claim: &ClaimRequest<'_>,
        settle: Settlement<'_>,
        held: Result<Hold, StoreErrorKind>,
    ) -> Result<Hold, StoreError> {
        for pause in PAUSES {
            if let Some(hold) = self.try_settle(claim, &settle).await? {
                return Ok(hold);
            }
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
        self.try_settle(claim, &settle).await?.map_or(held, Ok).map_err(StoreError::new)
    }
}

struct Settlement<'a> {
    becomes: &'static str,
    span_ms: i64,
    summary: Option<&'a str>,
    failure: Option<&'a str>,
}

impl Settlement<'_> {
    fn is_of_an_inbox(&self) -> bool {
        matches!(self.becomes, "retried" | "dead")
    }

    fn is_done_by(&self, state: &str) -> bool {
        match self.becomes {
            "completed" | "failed" => matches!(state, "completed" | "failed"),
            "released" => matches!(state, "released" | "accepted"),
            "retried" => state == "accepted",
            "dead" => state == "failed",
            _ => false,
        }
    }
}

impl Store for Version1 {
    fn claim<'a>(&'a self, request: &'a ClaimRequest<'a>) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            for pause in PAUSES {
                if let Some(claim) = self.try_claim(request).await? {
                    return Ok(claim);
                }
                tokio::time::sleep(Duration::from_millis(pause)).await;
            }
            Ok(self.try_claim(request).await?.unwrap_or(Claim::InFlight { same_body: true }))
        })
    }

    fn renew<'a>(&'a self, claim: &'a ClaimRequest<'a>) -> StoreFuture<'a, Hold> {
        let span_ms = milliseconds(claim.lease);
        let renewal = Settlement { becomes: "running", span_ms, summary: None, failure: None };
        Box::pin(self.settle(claim, renewal, Ok(Hold::Held)))
    }

    fn settle<'a>(&'a self, claim: &'a ClaimRequest<'a>, ending: Ending<'a>) -> StoreFuture<'a, Hold> {
        let settlement = match ending {
            Ending::Complete(completion) => Settlement {
                becomes: if completion.failed { "failed" } else { "completed" },
                span_ms: milliseconds(completion.retention),
                summary: Some(completion.summary),
                failure: completion.failed.then_some(completion.summary),
            },
            Ending::Release => {
                let span_ms = milliseconds(RELEASED_FOR);
                Settlement { becomes: "released", span_ms, summary: None, failure: None }
            }
            Ending::Retry { after, reason } => {
                let span_ms = if after.is_zero() { 0 } else { milliseconds(after) };
                Settlement { becomes: "retried", span_ms, summary: None, failure: Some(reason) }
            }
            Ending::Bury { reason } => {
                Settlement { becomes: "dead", span_ms: 1, summary: Some(reason), failure: Some(reason) }
            }
            other => panic!("that release knew no {other:?}"),
        };
        Box::pin(self.settle(claim, settlement, Err(StoreErrorKind::Locked)))
    }

    fn enlistment(&self) -> Option<Enlistment> {
        Some(Enlistment::new(Dialect::Postgres, COMPLETE.replace("webhook_events", &self.table)))
    }
}

/// What a statement that claims or accepts says of the event.
enum Seen {
    Fresh,
    Free,
    /// `None` if it is to be asked again.
    Answer(Option<Claim>),
}

fn seen(row: &PgRow, claim: &ClaimRequest<'_>) -> Seen {
    let same_body = row.get::<Option<i64>, _>("known") == Some(claim.fingerprint.as_u64().cast_signed());
    let is_own = row.get::<Option<&[u8]>, _>("holder") == Some(claim.token.as_bytes().as_slice());
    match row.get("state") {
        "fresh" => Seen::Fresh,
        "free" => Seen::Free,
        "running" if is_own => Seen::Answer(None),
        "running" => Seen::Answer(Some(Claim::InFlight { same_body })),
        "accepted" => Seen::Answer(Some(Claim::Accepted { same_body })),
        "completed" | "failed" => Seen::Answer(Some(Claim::Completed { same_body })),
        other => panic!("an event's state is {other:?}"),
    }
}

/// That somebody's transaction is in the way is an answer, too.
fn unless_blocked(answer: Result<Vec<PgRow>, sqlx::Error>) -> Said<Vec<PgRow>> {
    match answer {
        Ok(rows) => Ok(Some(rows)),
        Err(error) if error.as_database_error().is_some_and(|error| error.code().as_deref() == Some("55P03")) => {
            Ok(None)
        }
        Err(error) => Err(StoreError::unavailable(error)),
    }
}

fn milliseconds(time: Duration) -> i64 {
    // A thousand years, as in that release.
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX).clamp(1, 1_000 * 365 * 24 * 3600 * 1_000)
}
