-- Takes the keys that nobody has ever claimed, and says of the others how they are.
WITH asked AS MATERIALIZED (
    SELECT a.*, e.key AS seen, e.state, e.arrival, e.token AS holder, e.fingerprint AS known,
           CASE e.state
               WHEN 'released' THEN true
               WHEN 'running' THEN e.arrival IS NULL AND (e.token = a.token OR e.lease_until <= now())
               ELSE e.expires_at <= now()
           END AS free
      FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::bigint[], $5::text[])
           AS a (key, token, lease, fingerprint, event_type)
      LEFT JOIN webhook_events e ON e.key = a.key COLLATE "C"
),
-- Only keys that are not to be seen: on any other, ON CONFLICT would wait for whoever is changing the row.
inserted AS (
    INSERT INTO webhook_events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint)
    SELECT key, event_type, 'running', token, now() + lease * interval '1 millisecond', now(), 1, fingerprint
      FROM asked
     WHERE seen IS NULL
    ON CONFLICT (key) DO NOTHING
    RETURNING key, lease_until
)
SELECT key, 'fresh' AS state, NULL::bytea AS holder, NULL::bigint AS known,
       (extract(epoch FROM lease_until) * 1000000)::bigint AS fence
  FROM inserted
UNION ALL
SELECT key, CASE WHEN free THEN 'free' WHEN state = 'running' AND arrival IS NOT NULL THEN 'accepted' ELSE state END,
       holder, known, NULL
  FROM asked
 WHERE seen IS NOT NULL
