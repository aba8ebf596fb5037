-- Of each kind, so many events that have been due the longest.
SELECT f.*
  FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS k (endpoint_hash, type_hash, room),
       LATERAL (SELECT e.key, e.endpoint, e.event_type, (extract(epoch FROM e.due_at) * 1000000)::bigint AS due, e.arrival
                  FROM webhook_events e
                 WHERE (/* kind */) = (k.endpoint_hash, k.type_hash)
                   AND e.due_at < 'infinity' AND e.due_at <= now() AND /* from the bound */ AND /* in turn */
                 ORDER BY e.due_at, e.arrival
                 LIMIT k.room) f
