-- How the claims are that could not be settled.
SELECT a.n, e.token = a.token AS own, e.state, e.arrival IS NOT NULL AS queued,
       CASE WHEN e.token = a.token AND e.state IN ('completed', 'failed') THEN e.order_key END AS leaves
  FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS a (key, token, n)
  JOIN webhook_events e ON e.key = a.key COLLATE "C"
