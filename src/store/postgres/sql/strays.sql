-- Events that were leased under one of these tokens, in the time since that was asked for. Their leases end in as long a time.
SELECT e.key, e.token
  FROM webhook_events e
 WHERE e.due_at >= now() + ($2::bigint - $3::bigint) * interval '1 millisecond'
   AND e.due_at <= now() + $2::bigint * interval '1 millisecond'
   AND e.state = 'running' AND e.token = ANY ($1::bytea[])
