-- Deletes events. Of an order, the highest sequence that was completed is kept: old news are old news for good.
WITH deleted AS (
    DELETE FROM webhook_events
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM webhook_events /* which */ FOR UPDATE SKIP LOCKED))
    RETURNING state, token, order_key, sequence
),
applied AS (
    INSERT INTO webhook_events AS e (key, state, token, lease_until, received_at, attempts, fingerprint, order_key, sequence)
    SELECT 'applied ' || order_key, 'applied', '', now(), now(), 0, 0, order_key, max(sequence)
      FROM deleted
     WHERE state = 'completed' AND token <> '' AND order_key IS NOT NULL AND sequence IS NOT NULL
     GROUP BY order_key
     ORDER BY order_key
    ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence WHERE e.sequence < excluded.sequence
)
SELECT count(*) FROM deleted
