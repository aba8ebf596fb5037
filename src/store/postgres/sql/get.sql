SELECT key, state, arrival, event_type, floor(extract(epoch FROM received_at) * 1000)::bigint AS received,
       CASE WHEN state = 'accepted' AND due_at < 'infinity' THEN floor(extract(epoch FROM due_at) * 1000)::bigint END AS due,
       floor(extract(epoch FROM processed_at) * 1000)::bigint AS processed, attempts, summary,
       failures, order_key, sequence,
       -- What is kept no longer is gone, whether it is removed yet or not.
       state = 'completed' AND (body IS NULL OR coalesce(body_until <= now(), false)) AS without_body,
       CASE WHEN state <> 'completed' OR body_until IS NULL OR body_until > now() THEN head END AS head,
       CASE WHEN state <> 'completed' OR body_until IS NULL OR body_until > now() THEN body END AS body
  FROM webhook_events
 WHERE key = $1 AND arrival IS NOT NULL AND (expires_at IS NULL OR expires_at > now())
