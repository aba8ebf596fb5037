-- The table as the catalogue describes it. This reads without a lock on the table, and without a right to it.
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
