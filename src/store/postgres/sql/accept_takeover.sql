-- Puts events in whose claims are free to take.
WITH arrivals AS MATERIALIZED (
    -- As many numbers as are asked for, at once: they are given in the order of arrival, and the rows are written in that of the keys.
    SELECT array_agg(nextval('webhook_events_arrivals')) AS numbers FROM generate_series(1, cardinality($1::text[]))
),
locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place, e.state AS was, e.token AS holder, e.order_key AS old_order, e.sequence AS old_sequence
      FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::bytea[],
                  $9::text[], $10::bigint[], $11::int[])
           WITH ORDINALITY
           AS a (key, token, fingerprint, event_type, endpoint, received, head, body, order_key, sequence, turn, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE CASE e.state
               WHEN 'released' THEN true
               WHEN 'running' THEN e.arrival IS NULL AND (e.token = a.token OR e.lease_until <= now())
               ELSE e.expires_at <= now()
           END
       FOR NO KEY UPDATE OF e SKIP LOCKED
),
-- The event was not purged yet: its sequence outlives it all the same.
applied AS (
    INSERT INTO webhook_events AS e (key, state, token, lease_until, received_at, attempts, fingerprint, order_key, sequence)
    SELECT 'applied ' || old_order, 'applied', '', now(), now(), 0, 0, old_order, max(old_sequence)
      FROM locked
     WHERE was = 'completed' AND holder <> '' AND old_order IS NOT NULL AND old_sequence IS NOT NULL
     GROUP BY old_order
     ORDER BY old_order
    ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence WHERE e.sequence < excluded.sequence
)
-- By its place, and not by its key: a row that was changed since this statement began has another one, and is left alone.
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
RETURNING l.n, e.attempts, (e.due_at = 'infinity')::int::bigint AS held_up
