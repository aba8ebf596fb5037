use std::sync::Arc;

use super::migration::Schema;
use super::operators::OperatorsSql;
use super::table::TableName;

/// What makes the default table, `webhook_events`. It can be run again and again; on a table that is in use,
/// [`PostgresStore::migrate`](super::PostgresStore::migrate) is the better choice, since it does not stop receivers.
pub const SCHEMA_SQL: &str = include_str!("sql/schema.sql");

/// Completes a claim of the default table, `webhook_events`, inside of a handler's own transaction: for drivers other than
/// sqlx. It changes one row; none, if the token does not hold the claim, and then the transaction is to be rolled back.
///
/// Its parameters are those of an [`Enlistment`](crate::store::Enlistment): the key (`text`), the token (`bytea`), the summary
/// (`text`, without NUL), the retention in milliseconds (`bigint`).
pub const COMPLETE_SQL: &str = include_str!("sql/complete.sql");

const CLAIM_SQL: &str = include_str!("sql/claim.sql");
const TAKEOVER_SQL: &str = include_str!("sql/takeover.sql");
const SETTLE_SQL: &str = include_str!("sql/settle.sql");
const LOOK_SQL: &str = include_str!("sql/look.sql");
const ACCEPT_SQL: &str = include_str!("sql/accept.sql");
const ACCEPT_TAKEOVER_SQL: &str = include_str!("sql/accept_takeover.sql");
const PEEK_SQL: &str = include_str!("sql/peek.sql");
const LEASE_SQL: &str = include_str!("sql/lease.sql");
const LEASE_DUE_SQL: &str = include_str!("sql/lease_due.sql");
const LEASE_CHOSEN_SQL: &str = include_str!("sql/lease_chosen.sql");
const CANDIDATES_SQL: &str = include_str!("sql/candidates.sql");
const KINDS_SQL: &str = include_str!("sql/kinds.sql");
const OF_KINDS_SQL: &str = include_str!("sql/of_kinds.sql");
const BOUND_SQL: &str = include_str!("sql/bound.sql");
const BELOW_BOUND_SQL: &str = include_str!("sql/below_bound.sql");
const STRAYS_SQL: &str = include_str!("sql/strays.sql");
const PROMOTE_SQL: &str = include_str!("sql/promote.sql");
const HELD_UP_SQL: &str = include_str!("sql/held_up.sql");
const WAITING_SQL: &str = include_str!("sql/waiting.sql");
const NOTIFY_SQL: &str = include_str!("sql/notify.sql");
const CHANNEL_SQL: &str = include_str!("sql/channel.sql");
const TABLE_LOCK_SQL: &str = include_str!("sql/table_lock.sql");
const FACTS_SQL: &str = include_str!("sql/facts.sql");

/// Deletes events: those that have expired, or those that an operator names.
pub(super) const DELETE_SQL: &str = include_str!("sql/delete.sql");

/// Where a statement is to say which events it is about.
pub(super) const WHICH: &str = "/* which */";

const PURGE_BODIES_SQL: &str = include_str!("sql/purge_bodies.sql");

/// What several statements about events that are due have in common, and where it stands in them.
const SHARED: [(&str, &str); 3] = [
    // Of an order only the first event, and none while another one runs.
    ("/* in turn */", include_str!("sql/in_turn.sql")),
    (
        "/* from the bound */",
        "e.due_at >= coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', '-infinity')",
    ),
    // As in the index.
    ("/* kind */", "hashtextextended(e.endpoint, 0), hashtextextended(coalesce('=' || e.event_type, ''), 0)"),
];

/// Where a statement is to say for how many milliseconds bodies of completed events are kept.
const KEPT: &str = "NULL::bigint /* kept */";

const EXPIRED: &str = "WHERE expires_at < now() ORDER BY expires_at LIMIT $1";

/// All SQL of a store, about its table.
#[derive(Clone)]
pub(super) struct Statements {
    pub(super) table: TableName,
    pub(super) schema: Arc<str>,
    pub(super) migration: Schema,
    pub(super) claim: Arc<str>,
    pub(super) takeover: Arc<str>,
    pub(super) settle: Arc<str>,
    pub(super) look: Arc<str>,
    pub(super) complete: Arc<str>,
    pub(super) purge: Arc<str>,
    pub(super) accept: Arc<str>,
    pub(super) accept_takeover: Arc<str>,
    pub(super) purge_bodies: Arc<str>,
    pub(super) peek: Arc<str>,
    pub(super) lease_due: Arc<str>,
    pub(super) lease_chosen: Arc<str>,
    pub(super) candidates: Arc<str>,
    pub(super) kinds: Arc<str>,
    pub(super) of_kinds: Arc<str>,
    pub(super) bound: Arc<str>,
    pub(super) below_bound: Arc<str>,
    pub(super) strays: Arc<str>,
    pub(super) promote: Arc<str>,
    pub(super) held_up: Arc<str>,
    pub(super) waiting: Arc<str>,
    pub(super) notify: Arc<str>,
    pub(super) channel: Arc<str>,
    pub(super) table_lock: Arc<str>,
    pub(super) facts: Arc<str>,
    pub(super) delete_one: Arc<str>,
    pub(super) operators: OperatorsSql,
}

impl Statements {
    /// `kept_ms`: for how long completed bodies are kept; as long as their records, if it is not said.
    pub(super) fn about(table: TableName, kept_ms: Option<i64>) -> Self {
        let render = |sql: &str| Arc::from(table.render(sql));
        let due = |sql: &str| render(&SHARED.iter().fold(sql.to_owned(), |sql, (mark, text)| sql.replace(mark, text)));
        let lease = |which| due(&LEASE_SQL.replace("/* due */", which));
        let keeping = |sql: &str| match kept_ms {
            Some(ms) => sql.replace(KEPT, &format!("{ms}::bigint")),
            None => sql.to_owned(),
        };
        Self {
            schema: render(SCHEMA_SQL),
            migration: Schema::of(&table),
            claim: render(CLAIM_SQL),
            takeover: render(TAKEOVER_SQL),
            settle: render(&keeping(SETTLE_SQL)),
            look: render(LOOK_SQL),
            complete: render(&keeping(COMPLETE_SQL)),
            purge: render(&DELETE_SQL.replace(WHICH, EXPIRED)),
            accept: render(ACCEPT_SQL),
            accept_takeover: render(ACCEPT_TAKEOVER_SQL),
            purge_bodies: render(PURGE_BODIES_SQL),
            peek: render(PEEK_SQL),
            lease_due: lease(LEASE_DUE_SQL),
            lease_chosen: lease(LEASE_CHOSEN_SQL),
            candidates: due(CANDIDATES_SQL),
            kinds: due(KINDS_SQL),
            of_kinds: due(OF_KINDS_SQL),
            bound: due(BOUND_SQL),
            below_bound: due(BELOW_BOUND_SQL),
            strays: render(STRAYS_SQL),
            promote: render(PROMOTE_SQL),
            held_up: render(HELD_UP_SQL),
            waiting: render(WAITING_SQL),
            notify: render(NOTIFY_SQL),
            channel: render(CHANNEL_SQL),
            table_lock: render(TABLE_LOCK_SQL),
            facts: render(FACTS_SQL),
            delete_one: render("DELETE FROM webhook_events WHERE key = $1"),
            operators: OperatorsSql::about(&table, keeping),
            table,
        }
    }
}
