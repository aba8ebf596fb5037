SELECT e.ctid AS place, e.due_at, e.arrival, octet_length(e.head)::bigint + octet_length(e.body) AS weight
      FROM unnest($6::text[]) AS a (key)
      JOIN webhook_events e ON e.key = a.key COLLATE "C"
     WHERE e.due_at <= now() AND /* from the bound */ AND /* in turn */
       FOR NO KEY UPDATE OF e SKIP LOCKED