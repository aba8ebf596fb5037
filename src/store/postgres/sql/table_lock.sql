-- Whether another session holds or awaits a lock on the whole table, or on an index of it, that no claim can be made beside.
SELECT EXISTS (
    SELECT FROM pg_locks l
     WHERE l.locktype = 'relation'
       AND l.pid <> pg_backend_pid()
       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
       AND (l.relation = 'webhook_events'::regclass
            AND l.mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
         OR l.mode = 'AccessExclusiveLock'
            AND l.relation IN (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = 'webhook_events'::regclass)))
