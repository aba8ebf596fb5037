-- Leases what has been due the longest. Of an order only the first event, and none while another one runs.
WITH due AS MATERIALIZED (
    SELECT e.ctid AS place, e.due_at, e.arrival
      FROM webhook_events e
     WHERE e.due_at <= now()
       AND (cardinality($4::text[]) = 0 OR e.endpoint = ANY ($4::text[]))
       AND (cardinality($5::text[]) = 0 OR e.endpoint <> ALL ($5::text[]))
       AND (cardinality($6::text[]) = 0 OR e.event_type IS NULL OR e.event_type <> ALL ($6::text[]))
       AND (e.order_key IS NULL
            OR NOT EXISTS (SELECT FROM webhook_events o
                            WHERE o.order_key = e.order_key AND o.due_at IS NOT NULL AND o.arrival < e.arrival)
           AND NOT EXISTS (SELECT FROM webhook_events o
                            WHERE o.order_key = e.order_key AND o.state = 'running' AND o.key <> e.key))
     ORDER BY e.due_at, e.arrival
     LIMIT $1
       FOR NO KEY UPDATE OF e SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT place, row_number() OVER (ORDER BY due_at, arrival) AS n FROM due
)
-- By its place, and not by its key: a row that was changed since this statement began has another one, and is left alone.
UPDATE webhook_events e
   SET state = 'running',
       token = ($2::bytea[])[d.n],
       lease_until = now() + $3::bigint * interval '1 millisecond',
       due_at = now() + $3::bigint * interval '1 millisecond',
       attempts = e.attempts + 1,
       started_at = now(),
       failures = CASE e.state WHEN 'running'
                       THEN concat(e.failures, floor(extract(epoch FROM e.started_at) * 1000)::bigint, ' ',
                                   floor(extract(epoch FROM now()) * 1000)::bigint, ' ', $7::text, E'\n')
                       ELSE e.failures END
  FROM numbered d
 WHERE e.ctid = d.place
RETURNING d.n, e.token, e.key, e.event_type, e.fingerprint, e.attempts,
          floor(extract(epoch FROM e.received_at) * 1000)::bigint AS received, e.head, e.body, e.order_key, e.sequence,
          e.sequence IS NOT NULL
          AND EXISTS (SELECT FROM webhook_events o
                       WHERE o.order_key = e.order_key AND o.sequence >= e.sequence
                         AND o.state IN ('completed', 'applied')
                         -- Discarded is not applied.
                         AND (o.state = 'applied' OR o.token <> '')) AS superseded
