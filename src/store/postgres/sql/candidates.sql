-- Events that have been due the longest, of whatever kind.
SELECT e.key, e.endpoint, e.event_type, (extract(epoch FROM e.due_at) * 1000000)::bigint AS due, e.arrival
  FROM webhook_events e
 WHERE e.due_at <= now() AND /* from the bound */ AND /* in turn */
 ORDER BY e.due_at, e.arrival
 LIMIT $2
