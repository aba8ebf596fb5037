-- Since when the first event has been due that is below the bound; of all, if there is none.
SELECT (extract(epoch FROM e.due_at) * 1000000)::bigint AS first
  FROM webhook_events e
 WHERE e.due_at < coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', 'infinity')
 ORDER BY e.due_at, e.arrival LIMIT 1
