WITH asked AS MATERIALIZED (
    SELECT a.*, e.ctid AS seen, e.state AS was,
           e.token = a.token AS own,
           e.token = a.token AND e.state = 'running'
               AND (a.fence IS NULL OR a.fence = (extract(epoch FROM e.lease_until) * 1000000)::bigint) AS held
      FROM unnest($1::text[], $2::bytea[], $3::text[], $4::bigint[], $5::text[], $6::bigint[])
           WITH ORDINALITY AS a (key, token, becomes, span, summary, fence, n)
      LEFT JOIN webhook_events e ON e.key = a.key COLLATE "C"
),
locked AS MATERIALIZED (
    SELECT a.*, e.ctid AS here
      FROM asked a JOIN webhook_events e ON e.ctid = a.seen
     WHERE a.held AND e.state = 'running' AND e.token = a.token
     ORDER BY a.n
       FOR NO KEY UPDATE OF e SKIP LOCKED
),
settled AS (
    UPDATE webhook_events e
       SET state = l.becomes,
           lease_until = CASE l.becomes WHEN 'running' THEN now() + l.span * interval '1 millisecond' ELSE e.lease_until END,
           processed_at = CASE WHEN l.becomes IN ('completed', 'failed') THEN now() END,
           summary = l.summary,
           expires_at = CASE WHEN l.becomes <> 'running' THEN now() + l.span * interval '1 millisecond' END
      FROM locked l WHERE e.ctid = l.here
    RETURNING l.n
)
SELECT n, true AS held FROM settled
UNION ALL
-- Asked before under the same token, and done: the reply was lost.
SELECT n, coalesce(own AND (was = becomes OR was IN ('completed', 'failed') AND becomes IN ('completed', 'failed')), false)
  FROM asked WHERE held IS NOT TRUE
