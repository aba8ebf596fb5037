-- Events arrive in the queue, and wait in their orders. The statements that lease them are in `lease.sql`.

-- The arguments of events that arrive: a batch, like that of claims.
-- name: arriving
unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::bytea[],
       $9::text[], $10::bigint[], $11::int[])

-- Takes all arrival numbers of the batch at once. Events get them in the order in which they arrived, although the rows
-- are written in the order of their keys.
-- name: numbers
SELECT array_agg(nextval('webhook_events_arrivals')) AS numbers FROM generate_series(1, cardinality($1::text[]))

-- Inserts the events that have no row, and returns the state of the others.
-- name: enqueue
WITH arrivals AS MATERIALIZED ({numbers}),
asked AS MATERIALIZED (
    SELECT a.*, e.key AS seen, e.state, e.arrival AS arrived, e.token AS holder, e.fingerprint AS known,
           {is_free} AS free
      FROM {arriving}
           AS a (key, token, fingerprint, event_type, endpoint, received, head, body, order_key, sequence, turn)
      LEFT JOIN webhook_events e ON e.key = a.key COLLATE "C"
),
-- Only keys without a visible row: on any other key, ON CONFLICT would wait for the transaction that changes the row.
inserted AS (
    INSERT INTO webhook_events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint,
                                arrival, endpoint, due_at, head, body, order_key, sequence)
    SELECT key, event_type, 'accepted', token, now(), timestamptz 'epoch' + received * interval '1 millisecond', 0,
           fingerprint, (SELECT numbers FROM arrivals)[turn], endpoint,
           -- Behind another event of its order. No lease passes over such events, however many there are.
           CASE WHEN order_key IS NOT NULL
                 AND EXISTS (SELECT FROM webhook_events o
                              WHERE o.order_key = asked.order_key COLLATE "C" AND o.due_at IS NOT NULL)
                THEN 'infinity' ELSE now() END,
           head, body, order_key, sequence
      FROM asked
     WHERE seen IS NULL
    ON CONFLICT (key) DO NOTHING
    RETURNING key, due_at
)
SELECT key, 'fresh' AS state, NULL::bytea AS holder, NULL::bigint AS known, due_at = 'infinity' AS is_behind
  FROM inserted
UNION ALL
SELECT key, {claim_state}, holder, known, NULL
  FROM asked
 WHERE seen IS NOT NULL

-- Enqueues events over the rows that are free to take.
-- name: enqueue_over
WITH arrivals AS MATERIALIZED ({numbers}),
locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place, e.state AS was, e.token AS holder, e.order_key AS old_order, e.sequence AS old_sequence
      FROM {arriving} WITH ORDINALITY
           AS a (key, token, fingerprint, event_type, endpoint, received, head, body, order_key, sequence, turn, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE {is_free}
       FOR NO KEY UPDATE OF e SKIP LOCKED
),
applied AS ({apply_taken})
-- By `ctid` and not by key: a row that was changed since this statement began has another `ctid`, and is left alone.
UPDATE webhook_events e
   SET event_type = l.event_type,
       state = 'accepted',
       token = l.token,
       lease_until = now(),
       received_at = timestamptz 'epoch' + l.received * interval '1 millisecond',
       processed_at = NULL,
       attempts = 0,
       summary = NULL,
       fingerprint = l.fingerprint,
       expires_at = NULL,
       arrival = (SELECT numbers FROM arrivals)[l.turn], endpoint = l.endpoint, started_at = NULL,
       due_at = CASE WHEN l.order_key IS NOT NULL
                      AND EXISTS (SELECT FROM webhook_events o
                                   WHERE o.order_key = l.order_key COLLATE "C" AND o.due_at IS NOT NULL)
                     THEN 'infinity' ELSE now() END,
       head = l.head, body = l.body, order_key = l.order_key, sequence = l.sequence, failures = NULL,
       was_due_at = NULL, body_until = NULL
  FROM locked l
 WHERE e.ctid = l.place
RETURNING l.n, e.attempts, e.due_at = 'infinity' AS is_behind

-- The rows of keys that are about to be enqueued, in the states that `enqueue` would return. Rows that are free to take
-- are left out.
-- name: peek
SELECT a.n, CASE WHEN e.state = 'running' AND e.arrival IS NOT NULL THEN 'accepted' ELSE e.state END AS state,
       e.token AS holder, e.fingerprint AS known
  FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS a (key, token, n)
  JOIN webhook_events e ON e.key = a.key COLLATE "C"
 WHERE NOT coalesce({is_free}, false)

-- Counts the waiting events, up to $1.
-- name: count_waiting
SELECT count(*) FROM (
    SELECT FROM webhook_events WHERE due_at IS NOT NULL AND state = 'accepted' LIMIT $1
) counted

-- Makes the next event of each order leasable once its predecessor has finished. If a crash undoes this, the event is
-- found among `stalled_orders`, so the commit does not wait for the disk.
-- name: promote_next
WITH first AS MATERIALIZED (
    SELECT f.place
      FROM (SELECT set_config('synchronous_commit', 'off', true)) hurried, unnest($1::text[]) AS a (order_key),
           LATERAL (SELECT o.ctid AS place, o.due_at
                      FROM webhook_events o
                     WHERE o.order_key = a.order_key COLLATE "C" AND o.due_at IS NOT NULL
                     ORDER BY o.arrival LIMIT 1) f
     WHERE f.due_at = 'infinity'
),
locked AS MATERIALIZED (
    SELECT e.ctid AS place
      FROM first f
      JOIN webhook_events e ON e.ctid = f.place
     WHERE e.due_at = 'infinity'
       FOR NO KEY UPDATE OF e SKIP LOCKED
)
-- Due since it arrived, as if it had never been behind another event. It has not been leased since, so its `lease_until`
-- is that time.
UPDATE webhook_events e SET due_at = e.lease_until FROM locked l WHERE e.ctid = l.place
RETURNING (extract(epoch FROM e.due_at) * 1000000)::bigint AS due

-- The next $2 orders after $1 that have an event behind another one. If the other one has finished, such an order is
-- stalled: its next event was never promoted.
-- name: stalled_orders
WITH RECURSIVE orders AS (
    (SELECT order_key FROM webhook_events WHERE due_at = 'infinity' AND order_key > $1 ORDER BY order_key LIMIT 1)
    UNION ALL
    SELECT (SELECT e.order_key FROM webhook_events e
             WHERE e.due_at = 'infinity' AND e.order_key > o.order_key ORDER BY e.order_key LIMIT 1)
      FROM orders o
     WHERE o.order_key IS NOT NULL
)
SELECT order_key FROM orders WHERE order_key IS NOT NULL LIMIT $2
