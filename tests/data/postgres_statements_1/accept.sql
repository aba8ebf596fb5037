-- Puts the events in whose keys nobody has ever claimed, and says of the others how they are.
WITH asked AS MATERIALIZED (
    SELECT a.*, e.key AS seen, e.state, e.arrival AS arrived, e.token AS holder, e.fingerprint AS known,
           CASE e.state
               WHEN 'released' THEN true
               WHEN 'running' THEN e.arrival IS NULL AND (e.token = a.token OR e.lease_until <= now())
               ELSE e.expires_at <= now()
           END AS free
      FROM unnest($1::text[], $2::bytea[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::bytea[], $8::bytea[],
                  $9::text[], $10::bigint[])
           AS a (key, token, fingerprint, event_type, endpoint, received, head, body, order_key, sequence)
      LEFT JOIN webhook_events e ON e.key = a.key COLLATE "C"
),
-- Only keys that are not to be seen: on any other, ON CONFLICT would wait for whoever is changing the row.
inserted AS (
    INSERT INTO webhook_events (key, event_type, state, token, lease_until, received_at, attempts, fingerprint,
                                arrival, endpoint, due_at, head, body, order_key, sequence)
    SELECT key, event_type, 'accepted', token, now(), timestamptz 'epoch' + received * interval '1 millisecond', 0,
           fingerprint, nextval('webhook_events_arrivals'), endpoint,
           -- Held up, so that no lease has to pass over it, however many there are.
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
SELECT key, 'fresh' AS state, NULL::bytea AS holder, NULL::bigint AS known, (due_at = 'infinity')::int::bigint AS held_up
  FROM inserted
UNION ALL
SELECT key, CASE WHEN free THEN 'free' WHEN state = 'running' AND arrived IS NOT NULL THEN 'accepted' ELSE state END,
       holder, known, NULL
  FROM asked
 WHERE seen IS NOT NULL
