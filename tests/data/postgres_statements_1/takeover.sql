-- Takes claims that are free to take: released, lapsed, one's own, or of an event that is to be forgotten.
WITH locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place, e.state AS was, e.token AS holder
      FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::text[])
           WITH ORDINALITY AS a (key, token, lease, fingerprint, event_type, n)
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
       order_key = NULL, sequence = NULL, failures = NULL
  FROM locked l
 WHERE e.ctid = l.place
RETURNING l.n, e.attempts, (extract(epoch FROM e.lease_until) * 1000000)::bigint AS fence
