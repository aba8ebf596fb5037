SELECT current_setting('server_version') AS version,
       current_setting('server_version_num')::int AS version_number,
       pg_is_in_recovery() AS is_standby,
       current_setting('synchronous_commit') AS synchronous_commit,
       current_setting('fsync') AS fsync,
       coalesce(has_sequence_privilege(to_regclass('webhook_events_arrivals')::oid, 'USAGE'), true) AS may_number
