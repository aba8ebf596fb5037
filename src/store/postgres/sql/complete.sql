UPDATE webhook_events
   SET state = 'completed', processed_at = clock_timestamp(), summary = $3,
       expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond', due_at = NULL,
       was_due_at = NULL,
       head = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE head END,
       body = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE body END,
       body_until = CASE WHEN arrival IS NOT NULL AND NULL::bigint /* kept */ > 0
                         THEN clock_timestamp() + NULL::bigint /* kept */ * interval '1 millisecond' END
 WHERE key = $1 AND token = $2 AND state = 'running'
