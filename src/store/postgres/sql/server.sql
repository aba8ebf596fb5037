-- The catalogue, the server's settings, and notifications.

-- The table as the catalogue describes it. Reading this needs no lock on the table, and no right to it.
-- name: catalogue
SELECT t.oid IS NOT NULL AS has_table,
       to_regclass('webhook_events_arrivals') IS NOT NULL AS has_sequence,
       coalesce(pg_has_role(c.relowner, 'USAGE'), false) AS is_owner,
       obj_description(t.oid, 'pg_class') AS comment,
       ARRAY(SELECT a.attname::text FROM pg_attribute a
              WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
       ARRAY(SELECT i.relname::text FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
              WHERE x.indrelid = t.oid AND x.indisvalid) AS indexes,
       ARRAY(SELECT i.relname::text FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid
              WHERE x.indrelid = t.oid AND NOT x.indisvalid) AS invalid_indexes,
       quote_ident(n.nspname) AS schema
  FROM (SELECT to_regclass('webhook_events')::oid AS oid) t
  LEFT JOIN pg_class c ON c.oid = t.oid
  LEFT JOIN pg_namespace n ON n.oid = c.relnamespace

-- Whether another session holds or awaits a lock on the whole table, or on an index of it, that conflicts with claims.
-- name: is_table_locked
SELECT EXISTS (
    SELECT FROM pg_locks l
     WHERE l.locktype = 'relation'
       AND l.pid <> pg_backend_pid()
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND (l.relation = 'webhook_events'::regclass
            AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
         OR l.mode = 'AccessExclusiveLock'
            AND l.relation IN (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = 'webhook_events'::regclass)))

-- name: server_settings
SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_number,
       pg_is_in_recovery() AS is_standby,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync,
       floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now_ms,
       coalesce(has_sequence_privilege(to_regclass('webhook_events_arrivals')::oid, 'USAGE'), true) AS may_number

-- name: delete_key
DELETE FROM webhook_events WHERE key = $1

-- name: channel
SELECT 'tower_webhook_' || 'webhook_events'::regclass::oid

-- name: notify
SELECT pg_notify('tower_webhook_' || 'webhook_events'::regclass::oid, '')
