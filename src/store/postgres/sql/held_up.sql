-- Some orders with events that are held up, behind the one that was seen last.
WITH RECURSIVE orders AS (
    (SELECT order_key FROM webhook_events WHERE due_at = 'infinity' AND order_key > $1 ORDER BY order_key LIMIT 1)
    UNION ALL
    SELECT (SELECT e.order_key FROM webhook_events e
             WHERE e.due_at = 'infinity' AND e.order_key > o.order_key ORDER BY e.order_key LIMIT 1)
      FROM orders o
     WHERE o.order_key IS NOT NULL
)
SELECT order_key FROM orders WHERE order_key IS NOT NULL LIMIT $2
