DELETE FROM webhook_events
 WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM webhook_events
     WHERE expires_at < now()
     ORDER BY expires_at LIMIT $1
       FOR UPDATE SKIP LOCKED))
