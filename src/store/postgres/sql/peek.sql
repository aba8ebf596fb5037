-- How the keys are that somebody has claimed, as those are told who would accept them. What is free to take is not known.
SELECT a.n, CASE WHEN e.state = 'running' AND e.arrival IS NOT NULL THEN 'accepted' ELSE e.state END AS state,
       e.token AS holder, e.fingerprint AS known
  FROM unnest($1::text[], $2::bytea[]) WITH ORDINALITY AS a (key, token, n)
  JOIN webhook_events e ON e.key = a.key COLLATE "C"
 WHERE NOT CASE e.state
               WHEN 'released' THEN true
               WHEN 'running' THEN e.arrival IS NULL AND (e.token = a.token OR e.lease_until <= now())
               ELSE coalesce(e.expires_at <= now(), false)
           END
