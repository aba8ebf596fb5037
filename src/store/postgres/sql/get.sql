SELECT key, state, arrival, event_type, floor(extract(epoch FROM received_at) * 1000)::bigint AS received,
       CASE WHEN state = 'accepted' AND due_at < 'infinity' THEN floor(extract(epoch FROM due_at) * 1000)::bigint END AS due,
       floor(extract(epoch FROM processed_at) * 1000)::bigint AS processed, attempts, summary,
       failures, head, body, order_key, sequence
  FROM webhook_events
 WHERE key = $1 AND arrival IS NOT NULL AND (expires_at IS NULL OR expires_at > now())
