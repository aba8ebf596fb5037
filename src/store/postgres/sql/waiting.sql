SELECT count(*) FROM (
    SELECT FROM webhook_events WHERE due_at IS NOT NULL AND state = 'accepted' LIMIT $1
) counted
