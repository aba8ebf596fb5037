-- Leases events. Of an order only the first event, and none while another one runs.
WITH due AS MATERIALIZED (
    /* due */
),
numbered AS MATERIALIZED (
    SELECT place, row_number() OVER in_order AS n, coalesce(sum(weight) OVER in_order, 0) AS weight
      FROM due
    WINDOW in_order AS (ORDER BY due_at, arrival ROWS UNBOUNDED PRECEDING)
)
-- By its place, and not by its key: a row that was changed since this statement began has another one, and is left alone.
UPDATE webhook_events e
   SET state = 'running',
       token = ($2::bytea[])[d.n],
       lease_until = now() + $3::bigint * interval '1 millisecond',
       due_at = now() + $3::bigint * interval '1 millisecond',
       -- Of one whose lease has lapsed, that of the lease before.
       was_due_at = CASE e.state WHEN 'running' THEN coalesce(e.was_due_at, e.due_at) ELSE e.due_at END,
       attempts = e.attempts + 1,
       started_at = now(),
       failures = CASE e.state WHEN 'running'
                       THEN concat(e.failures, floor(extract(epoch FROM e.started_at) * 1000)::bigint, ' ',
                                   floor(extract(epoch FROM now()) * 1000)::bigint, ' ', $4::text, E'\n')
                       ELSE e.failures END
  FROM numbered d
 WHERE e.ctid = d.place
   -- No more than can be told in time; the others are for the next lease.
   AND (d.n = 1 OR d.weight <= $5::bigint)
RETURNING d.n, e.token, e.key, e.event_type, e.fingerprint, e.attempts,
          floor(extract(epoch FROM e.received_at) * 1000)::bigint AS received, e.head, e.body, e.order_key, e.sequence,
          coalesce(e.started_as = e.arrival, false) AS started,
          e.sequence IS NOT NULL
          AND EXISTS (SELECT FROM webhook_events o
                       WHERE o.order_key = e.order_key AND o.sequence >= e.sequence
                         AND o.state IN ('completed', 'applied')
                         -- Discarded is not applied.
                         AND (o.state = 'applied' OR o.token <> '')) AS superseded
