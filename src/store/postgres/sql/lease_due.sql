SELECT e.ctid AS place, e.due_at, e.arrival, octet_length(e.head)::bigint + octet_length(e.body) AS weight
      FROM webhook_events e
     WHERE e.due_at <= now() AND /* from the bound */ AND /* in turn */
     ORDER BY e.due_at, e.arrival
     LIMIT $6
       FOR NO KEY UPDATE OF e SKIP LOCKED