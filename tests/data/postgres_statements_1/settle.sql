-- Renews, completes or gives up the claims that their tokens hold. What is given up of an inbox is put back, and not counted as
-- an attempt; retried or dead, the attempt is noted down.
WITH locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place, e.arrival IS NOT NULL AS queued,
           now() + a.span * interval '1 millisecond' AS until,
           CASE a.becomes
               WHEN 'dead' THEN 'failed'
               WHEN 'retried' THEN 'accepted'
               WHEN 'released' THEN CASE WHEN e.arrival IS NULL THEN 'released' ELSE 'accepted' END
               ELSE a.becomes
           END AS state
      FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[])
           WITH ORDINALITY AS a (key, token, becomes, span, summary, failure, fence, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE e.token = a.token
       AND e.state = 'running'
       AND (a.becomes NOT IN ('dead', 'retried') OR e.arrival IS NOT NULL)
       AND (a.fence IS NULL OR a.fence = (extract(epoch FROM e.lease_until) * 1000000)::bigint)
       FOR NO KEY UPDATE OF e SKIP LOCKED
)
-- By its place, and not by its key: a row that was changed since this statement began has another one, and is left alone.
UPDATE webhook_events e
   SET state = l.state,
       lease_until = CASE l.state WHEN 'running' THEN l.until ELSE e.lease_until END,
       processed_at = CASE WHEN l.state IN ('completed', 'failed') THEN now() END,
       attempts = CASE WHEN l.queued AND l.becomes = 'released' THEN e.attempts - 1 ELSE e.attempts END,
       summary = l.summary,
       expires_at = CASE WHEN l.state IN ('completed', 'released') OR l.state = 'failed' AND NOT l.queued THEN l.until END,
       due_at = CASE WHEN NOT l.queued OR l.state IN ('completed', 'failed') THEN NULL
                     WHEN l.becomes = 'released' THEN now()
                     ELSE l.until END,
       failures = CASE WHEN l.queued AND l.failure IS NOT NULL
                       THEN concat(e.failures, floor(extract(epoch FROM e.started_at) * 1000)::bigint, ' ',
                                   floor(extract(epoch FROM now()) * 1000)::bigint, ' ', l.failure, E'\n')
                       ELSE e.failures END
  FROM locked l
 WHERE e.ctid = l.place
-- Whether an event may be due now: this one, or the next one of its order.
RETURNING l.n, e.due_at <= now() AS is_due, CASE WHEN l.state IN ('completed', 'failed') THEN e.order_key END AS leaves
