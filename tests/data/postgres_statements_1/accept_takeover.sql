-- Puts events in whose claims are free to take.
WITH locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place
      FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::bytea[],
                  $9::text[], $10::bigint[])
           WITH ORDINALITY
           AS a (key, token, fingerprint, event_type, endpoint, received, head, body, order_key, sequence, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE CASE e.state
               WHEN 'released' THEN true
               WHEN 'running' THEN e.arrival IS NULL AND (e.token = a.token OR e.lease_until <= now())
               ELSE e.expires_at <= now()
           END
       FOR NO KEY UPDATE OF e SKIP LOCKED
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
       arrival = nextval('webhook_events_arrivals'), endpoint = l.endpoint, started_at = NULL,
       due_at = CASE WHEN l.order_key IS NOT NULL
                      AND EXISTS (SELECT FROM webhook_events o
                                   WHERE o.order_key = l.order_key COLLATE "C" AND o.due_at IS NOT NULL)
                     THEN 'infinity' ELSE now() END,
       head = l.head, body = l.body, order_key = l.order_key, sequence = l.sequence, failures = NULL
  FROM locked l
 WHERE e.ctid = l.place
RETURNING l.n, e.attempts, (e.due_at = 'infinity')::int::bigint AS held_up
