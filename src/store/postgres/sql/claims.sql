-- Inline claims, and the ends of all claims. A statement is about a batch: each parameter is an array, with a value for
-- each claim. Sections are read as in `store/sections.rs`; the table is written with its default name.

-- Whether the row `e` is free to take for the claim `a`: it was released, its lease has lapsed or is the caller's own,
-- or its retention is over. Queued events are never free.
-- name: is_free
CASE e.state
    WHEN 'released' THEN true
    WHEN 'running' THEN e.arrival IS NULL AND (e.token = a.token OR e.lease_until <= now())
    ELSE e.expires_at <= now()
END

-- The state of a row as a claim returns it.
-- name: claim_state
CASE WHEN free THEN 'free' WHEN state = 'running' AND arrived IS NOT NULL THEN 'accepted' ELSE state END

-- The arguments of inline claims.
-- name: inline_claims
unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::text[])

-- Inserts the keys that have no row, and returns the state of the others.
-- name: claim
WITH asked AS MATERIALIZED (
    SELECT a.*, e.key AS seen, e.state, e.arrival AS arrived, e.token AS holder, e.fingerprint AS known,
           {is_free} AS free
      FROM {inline_claims} AS a (key, token, lease, fingerprint, event_type)
      LEFT JOIN webhook_events e ON e.key = a.key COLLATE "C"
),
-- Only keys without a visible row: on any other key, ON CONFLICT would wait for the transaction that changes the row.
inserted AS (
    INSERT INTO webhook_events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint)
    SELECT key, event_type, 'running', token, now() + lease * interval '1 millisecond', now(), 1, fingerprint
      FROM asked
     WHERE seen IS NULL
    ON CONFLICT (key) DO NOTHING
    RETURNING key, lease_until
)
SELECT key, 'fresh' AS state, NULL::bytea AS holder, NULL::bigint AS known,
       (extract(epoch FROM lease_until) * 1000000)::bigint AS lease_until
  FROM inserted
UNION ALL
SELECT key, {claim_state}, holder, known, NULL
  FROM asked
 WHERE seen IS NOT NULL

-- Takes over the rows that are free to take.
-- name: take_over
WITH locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place, e.state AS was, e.token AS holder, e.order_key AS old_order, e.sequence AS old_sequence
      FROM {inline_claims} WITH ORDINALITY AS a (key, token, lease, fingerprint, event_type, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE {is_free}
       FOR NO KEY UPDATE OF e SKIP LOCKED
),
applied AS ({apply_taken})
-- By `ctid` and not by key: a row that was changed since this statement began has another `ctid`, and is left alone.
UPDATE webhook_events e
   SET event_type = l.event_type,
       state = 'running',
       token = l.token,
       lease_until = now() + l.lease * interval '1 millisecond',
       received_at = CASE WHEN l.was IN ('running', 'released') THEN e.received_at ELSE now() END,
       processed_at = NULL,
       attempts = CASE WHEN l.was = 'running' AND l.holder = l.token THEN e.attempts
                       WHEN l.was IN ('running', 'released') THEN e.attempts + 1
                       ELSE 1 END,
       summary = NULL,
       fingerprint = l.fingerprint,
       expires_at = NULL,
       arrival = NULL, endpoint = NULL, due_at = NULL, started_at = NULL, head = NULL, body = NULL,
       order_key = NULL, sequence = NULL, failures = NULL, was_due_at = NULL, started_as = NULL, body_until = NULL
  FROM locked l
 WHERE e.ctid = l.place
RETURNING l.n, e.attempts, (extract(epoch FROM e.lease_until) * 1000000)::bigint AS lease_until,
          l.was = 'running' AND l.holder = l.token AS was_own

-- The highest completed sequence of an order outlives its events: when a completed event is deleted, overwritten or
-- requeued, its sequence is kept in a row of the state `applied`. A discarded event has an empty token, and was not
-- applied.

-- name: apply
INSERT INTO webhook_events AS e
    (key, state, token, lease_until, received_at, attempts, fingerprint, order_key, sequence)

-- name: keep_highest
ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence WHERE e.sequence < excluded.sequence

-- Keeps the sequences of the rows that a claim takes over before the purge has deleted them.
-- name: apply_taken
{apply}
SELECT 'applied ' || old_order, 'applied', '', now(), now(), 0, 0, old_order, max(old_sequence)
  FROM locked
 WHERE was = 'completed' AND holder <> '' AND old_order IS NOT NULL AND old_sequence IS NOT NULL
 GROUP BY old_order
 ORDER BY old_order
{keep_highest}

-- Renews or ends the claims that their tokens hold. A queued event that is released is put back to where it was, and
-- the attempt is not counted; if it is retried or buried, the failed attempt is added to `failures`.
-- name: settle
WITH locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place, e.arrival IS NOT NULL AS queued,
           now() + a.duration * interval '1 millisecond' AS until,
           CASE a.becomes
               WHEN 'dead' THEN 'failed'
               WHEN 'retried' THEN 'accepted'
               WHEN 'started' THEN 'running'
               WHEN 'released' THEN CASE WHEN e.arrival IS NULL THEN 'released' ELSE 'accepted' END
               ELSE a.becomes
           END AS state
      FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
           WITH ORDINALITY AS a (key, token, becomes, duration, summary, failure, lease_until, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE e.token = a.token
       AND e.state = 'running'
       AND (a.becomes NOT IN ('dead', 'retried', 'started') OR e.arrival IS NOT NULL)
       AND (a.lease_until IS NULL OR a.lease_until = (extract(epoch FROM e.lease_until) * 1000000)::bigint)
       FOR NO KEY UPDATE OF e SKIP LOCKED
)
-- By `ctid` and not by key: a row that was changed since this statement began has another `ctid`, and is left alone.
UPDATE webhook_events e
   SET state = l.state,
       lease_until = CASE l.state WHEN 'running' THEN l.until ELSE now() END,
       processed_at = CASE WHEN l.state IN ('completed', 'failed') THEN now() END,
       attempts = CASE WHEN l.queued AND l.becomes = 'released' THEN e.attempts - 1 ELSE e.attempts END,
       summary = l.summary,
       expires_at = CASE WHEN l.state IN ('completed', 'released') OR l.state = 'failed' AND NOT l.queued
                         THEN l.until END,
       due_at = CASE WHEN NOT l.queued OR l.state IN ('completed', 'failed') THEN NULL
                     -- An event that an earlier release of this crate leased has no `was_due_at`.
                     WHEN l.becomes = 'released' THEN coalesce(e.was_due_at, now())
                     ELSE l.until END,
       was_due_at = CASE l.state WHEN 'running' THEN e.was_due_at END,
       started_as = CASE l.becomes WHEN 'started' THEN e.arrival WHEN 'released' THEN NULL ELSE e.started_as END,
       -- Bodies with a retention of zero are removed by this statement.
       head = CASE WHEN l.state = 'completed' AND {completed_body_retention} = 0 THEN NULL ELSE e.head END,
       body = CASE WHEN l.state = 'completed' AND {completed_body_retention} = 0 THEN NULL ELSE e.body END,
       body_until = CASE WHEN l.queued AND l.state = 'completed' AND {completed_body_retention} > 0
                         THEN now() + {completed_body_retention} * interval '1 millisecond' END,
       failures = CASE WHEN l.queued AND l.failure IS NOT NULL
                       THEN concat(e.failures, floor(extract(epoch FROM e.started_at) * 1000)::bigint, ' ',
                                   floor(extract(epoch FROM now()) * 1000)::bigint, ' ', l.failure, E'\n')
                       ELSE e.failures END
  FROM locked l
 WHERE e.ctid = l.place
-- Whether an event may be due now: this one, or the next one of its order.
RETURNING l.n, e.due_at <= now() AS is_due, CASE WHEN l.state IN ('completed', 'failed') THEN e.order_key END AS leaves,
          CASE l.becomes WHEN 'released' THEN (extract(epoch FROM e.due_at) * 1000000)::bigint END AS due

-- The rows of claims that could not be settled.
-- name: why_unsettled
SELECT a.n, e.token = a.token AS own, e.state, e.arrival IS NOT NULL AS queued,
       CASE WHEN e.token = a.token AND e.state IN ('completed', 'failed') THEN e.order_key END AS leaves
  FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS a (key, token, n)
  JOIN webhook_events e ON e.key = a.key COLLATE "C"
