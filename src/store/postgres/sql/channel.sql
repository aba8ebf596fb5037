SELECT 'tower_webhook_' || 'webhook_events'::regclass::oid
