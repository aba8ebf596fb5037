UPDATE webhook_events
   SET state = 'completed', processed_at = clock_timestamp(), summary = $3,
       expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond', due_at = NULL
 WHERE key = $1 AND token = $2 AND state = 'running'
