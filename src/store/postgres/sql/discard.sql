-- Under nobody's token: nobody has completed it, and its sequence was not applied.
WITH changed AS (
    UPDATE webhook_events
       SET state = 'completed', token = '', due_at = NULL, processed_at = now(), summary = 'discarded by an operator',
           expires_at = now() + $1::bigint * interval '1 millisecond',
           head = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE head END,
           body = CASE WHEN NULL::bigint /* kept */ = 0 THEN NULL ELSE body END,
           body_until = CASE WHEN NULL::bigint /* kept */ > 0 THEN now() + NULL::bigint /* kept */ * interval '1 millisecond' END
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM webhook_events /* which */ FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING order_key
)
SELECT count(*), coalesce(array_agg(DISTINCT order_key) FILTER (WHERE order_key IS NOT NULL), '{}'), 0::bigint FROM changed
