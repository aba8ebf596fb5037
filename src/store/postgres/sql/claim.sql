WITH asked AS MATERIALIZED (
    SELECT a.*, e.ctid AS seen, e.state, e.token AS holder, e.lease_until, e.fingerprint AS known,
           CASE e.state
               WHEN 'released' THEN true
               WHEN 'running' THEN e.token = a.token OR e.lease_until <= now()
               ELSE e.expires_at <= now()
           END AS free
      FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::text[])
           WITH ORDINALITY AS a (key, token, lease, fingerprint, event_type, n)
      LEFT JOIN webhook_events e ON e.key = a.key COLLATE "C"
),
-- Only keys that are not to be seen: on any other, ON CONFLICT would wait for whoever is changing the row.
inserted AS (
    INSERT INTO webhook_events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint)
    SELECT key, event_type, 'running', token, now() + lease * interval '1 millisecond', now(), 1, fingerprint
      FROM asked WHERE seen IS NULL ORDER BY n
    ON CONFLICT (key) DO NOTHING
    RETURNING key, attempts, lease_until
),
locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS here
      FROM asked a JOIN webhook_events e ON e.ctid = a.seen
     WHERE a.free AND e.state = a.state AND e.token = a.holder AND e.lease_until = a.lease_until
     ORDER BY a.n
       FOR NO KEY UPDATE OF e SKIP LOCKED
),
taken AS (
    UPDATE webhook_events e
       SET event_type = l.event_type,
           state = 'running',
           token = l.token,
           lease_until = now() + l.lease * interval '1 millisecond',
           received_at = CASE WHEN l.state IN ('running', 'released') THEN e.received_at ELSE now() END,
           processed_at = NULL,
           attempts = CASE WHEN l.state NOT IN ('running', 'released') THEN 1
                           WHEN l.state = 'running' AND l.holder = l.token THEN e.attempts
                           ELSE e.attempts + 1 END,
           summary = NULL,
           fingerprint = l.fingerprint,
           expires_at = NULL
      FROM locked l WHERE e.ctid = l.here
    RETURNING e.key, e.attempts, e.lease_until
)
SELECT key, 'fresh' AS state, NULL::bytea AS holder, NULL::bigint AS known, attempts,
       (extract(epoch FROM lease_until) * 1000000)::bigint AS fence
  FROM (SELECT * FROM inserted UNION ALL SELECT * FROM taken) AS fresh
UNION ALL
SELECT key, CASE WHEN free THEN 'free' ELSE state END, holder, known, NULL, NULL
  FROM asked WHERE seen IS NOT NULL
