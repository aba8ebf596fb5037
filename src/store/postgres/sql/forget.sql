DELETE FROM webhook_events
 WHERE ctid = ANY (ARRAY(SELECT ctid FROM webhook_events /* which */ FOR UPDATE SKIP LOCKED))
