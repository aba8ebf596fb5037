SELECT pg_notify('tower_webhook_' || 'webhook_events'::regclass::oid, '')
