-- Removes heads and bodies of completed events that are kept for a shorter time than the events.
WITH chosen AS MATERIALIZED (
    SELECT ctid AS place
      FROM webhook_events
     WHERE body_until <= now() AND state = 'completed'
     ORDER BY body_until LIMIT $1
       FOR NO KEY UPDATE SKIP LOCKED
),
changed AS (
    UPDATE webhook_events e SET head = NULL, body = NULL, body_until = NULL FROM chosen c WHERE e.ctid = c.place
    RETURNING 1
)
SELECT count(*) FROM changed
