//! The statements of one table: the sections of `sql/*.sql`.

use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgArguments, Postgres};
use sqlx::query::Query;

use super::table::TableName;
use crate::store::sections;

/// Completes a claim inside a handler's own transaction, in the default table, `webhook_events`, for drivers other than
/// sqlx. It changes one row. If it changes none, the token does not hold the claim: roll back.
///
/// Its parameters are those of an [`Enlistment`](crate::store::Enlistment): the key (`text`), the token (`bytea`), the
/// summary (`text`, without NUL), the retention in milliseconds (`bigint`).
pub const COMPLETE_SQL: &str = "UPDATE webhook_events
   SET state = 'completed', processed_at = clock_timestamp(), summary = $3,
       expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond', due_at = NULL,
       was_due_at = NULL,
       head = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE head END,
       body = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE body END,
       body_until = CASE WHEN arrival IS NOT NULL AND NULL::bigint /* kept */ > 0
                         THEN clock_timestamp() + NULL::bigint /* kept */ * interval '1 millisecond' END
 WHERE key = $1 AND token = $2 AND state = 'running'
";

/// The place of the body retention in [`COMPLETE_SQL`], which has to be a statement as it is.
const KEPT: &str = "NULL::bigint /* kept */";

/// The place of a filter's condition. It is not a section.
const MATCHING: &str = "{matching}";

const FILES: [&str; 5] = [
    include_str!("sql/claims.sql"),
    include_str!("sql/queue.sql"),
    include_str!("sql/lease.sql"),
    include_str!("sql/operators.sql"),
    include_str!("sql/server.sql"),
];

pub(super) type Statement = Query<'static, Postgres, PgArguments>;

/// The texts for one table.
#[derive(Clone)]
pub(super) struct Statements {
    pub(super) table: TableName,
    pub(super) claim: Arc<str>,
    pub(super) take_over: Arc<str>,
    pub(super) settle: Arc<str>,
    pub(super) why_unsettled: Arc<str>,
    pub(super) complete: Arc<str>,
    pub(super) enqueue: Arc<str>,
    pub(super) enqueue_over: Arc<str>,
    pub(super) peek: Arc<str>,
    pub(super) count_waiting: Arc<str>,
    pub(super) promote_next: Arc<str>,
    pub(super) stalled_orders: Arc<str>,
    pub(super) lease_first_due: Arc<str>,
    pub(super) lease_picked: Arc<str>,
    pub(super) candidates: Arc<str>,
    pub(super) kinds: Arc<str>,
    pub(super) of_kinds: Arc<str>,
    pub(super) measure_scan: Arc<str>,
    pub(super) first_before_scan: Arc<str>,
    pub(super) find_leased: Arc<str>,
    pub(super) list: Filtered,
    pub(super) get: Arc<str>,
    pub(super) counts: Arc<str>,
    pub(super) requeue: Filtered,
    pub(super) discard: Filtered,
    pub(super) forget: Filtered,
    pub(super) purge: Arc<str>,
    pub(super) purge_bodies: Arc<str>,
    pub(super) catalogue: Arc<str>,
    pub(super) is_table_locked: Arc<str>,
    pub(super) server_settings: Arc<str>,
    pub(super) delete_key: Arc<str>,
    pub(super) channel: Arc<str>,
    pub(super) notify: Arc<str>,
}

/// A statement in two parts: a filter's condition belongs between them.
#[derive(Clone)]
pub(super) struct Filtered {
    pub(super) before: Arc<str>,
    pub(super) after: Arc<str>,
}

impl Statements {
    /// `body_retention_ms`: how long bodies of completed events are kept; `None` keeps them as long as their records.
    pub(super) fn new(table: TableName, body_retention_ms: Option<i64>) -> Self {
        let retention = body_retention_ms.map_or("NULL::bigint".to_owned(), |ms| format!("{ms}::bigint"));
        let with = |name, values: &[(&str, &str)]| {
            sections::sql(&FILES, name, &[values, &[("body_retention", &*retention)]].concat())
        };
        let text = |name| Arc::from(table.render(&with(name, &[])));
        let lease = |due_events| Arc::from(table.render(&with("lease", &[("due_events", due_events)])));
        let filtered = |name| {
            let text = with(name, &[]);
            let (before, after) = text.split_once(MATCHING).expect("a place for the condition");
            Filtered { before: table.render(before).into(), after: table.render(after).into() }
        };
        Self {
            claim: text("claim"),
            take_over: text("take_over"),
            settle: text("settle"),
            why_unsettled: text("why_unsettled"),
            complete: table.render(&COMPLETE_SQL.replace(KEPT, &retention)).into(),
            enqueue: text("enqueue"),
            enqueue_over: text("enqueue_over"),
            peek: text("peek"),
            count_waiting: text("count_waiting"),
            promote_next: text("promote_next"),
            stalled_orders: text("stalled_orders"),
            lease_first_due: lease("{first_due}"),
            lease_picked: lease("{picked}"),
            candidates: text("candidates"),
            kinds: text("kinds"),
            of_kinds: text("of_kinds"),
            measure_scan: text("measure_scan"),
            first_before_scan: text("first_before_scan"),
            find_leased: text("find_leased"),
            list: filtered("list"),
            get: text("get"),
            counts: text("counts"),
            requeue: filtered("requeue"),
            discard: filtered("discard"),
            forget: filtered("delete"),
            purge: table.render(&with("delete", &[("matching", "{expired}")])).into(),
            purge_bodies: text("purge_bodies"),
            catalogue: text("catalogue"),
            is_table_locked: text("is_table_locked"),
            server_settings: text("server_settings"),
            delete_key: text("delete_key"),
            channel: text("channel"),
            notify: text("notify"),
            table,
        }
    }
}

pub(super) fn statement(text: &Arc<str>) -> Statement {
    // Safe: only this module's texts and quoted table names.
    sqlx::query(AssertSqlSafe(text.clone()))
}
