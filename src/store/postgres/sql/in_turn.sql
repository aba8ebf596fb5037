(e.order_key IS NULL
            OR NOT EXISTS (SELECT FROM webhook_events o
                            WHERE o.order_key = e.order_key AND o.due_at IS NOT NULL AND o.arrival < e.arrival)
           AND NOT EXISTS (SELECT FROM webhook_events o
                            WHERE o.order_key = e.order_key AND o.state = 'running' AND o.key <> e.key))