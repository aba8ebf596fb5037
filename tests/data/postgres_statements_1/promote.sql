-- Lets the first event of each order be leased that was held up behind another one. A crash that undoes this is made up for
-- later, so nobody waits until it is on disk.
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
-- As if it had never been held up.
UPDATE webhook_events e SET due_at = e.lease_until FROM locked l WHERE e.ctid = l.place
