SELECT count(*) FILTER (WHERE state = 'accepted') AS waiting,
       count(*) FILTER (WHERE state = 'running') AS running,
       count(*) FILTER (WHERE state = 'completed') AS completed,
       count(*) FILTER (WHERE state = 'failed') AS dead,
       floor(extract(epoch FROM now() - min(received_at) FILTER (WHERE state = 'accepted' AND (due_at <= now() OR due_at = 'infinity'))) * 1000)::bigint
           AS oldest
  FROM webhook_events
 WHERE arrival IS NOT NULL AND (expires_at IS NULL OR expires_at > now())
