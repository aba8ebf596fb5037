-- How many rows are dead and not removed yet, what time it is, and since when the first event from the bound on has been due.
SELECT pg_stat_get_dead_tuples('webhook_events'::regclass) AS dead,
       (extract(epoch FROM now()) * 1000000)::bigint AS now,
       (SELECT (extract(epoch FROM e.due_at) * 1000000)::bigint
          FROM webhook_events e
         WHERE $1::bigint IS NOT NULL AND e.due_at < 'infinity' AND /* from the bound */
         ORDER BY e.due_at, e.arrival LIMIT 1) AS first
