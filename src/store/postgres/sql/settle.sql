-- Renews, completes or releases the claims that their tokens hold.
WITH locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS place
      FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
           WITH ORDINALITY AS a (key, token, becomes, span, summary, fence, n)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE e.token = a.token
       AND e.state = 'running'
       AND (a.fence IS NULL OR a.fence = (extract(epoch FROM e.lease_until) * 1000000)::bigint)
       FOR NO KEY UPDATE OF e SKIP LOCKED
)
-- By its place, and not by its key: a row that was changed since this statement began has another one, and is left alone.
UPDATE webhook_events e
   SET state = l.becomes,
       lease_until = CASE l.becomes WHEN 'running' THEN now() + l.span * interval '1 millisecond' ELSE e.lease_until END,
       processed_at = CASE WHEN l.becomes IN ('completed', 'failed') THEN now() END,
       summary = l.summary,
       expires_at = CASE WHEN l.becomes <> 'running' THEN now() + l.span * interval '1 millisecond' END
  FROM locked l
 WHERE e.ctid = l.place
RETURNING l.n
