CREATE TABLE IF NOT EXISTS {table} (
    key          TEXT NOT NULL PRIMARY KEY,
    event_type   TEXT,
    state        TEXT NOT NULL,
    token        BLOB NOT NULL,
    boot         TEXT NOT NULL,
    lease_until  INTEGER,
    received_at  INTEGER NOT NULL,
    processed_at INTEGER,
    attempts     INTEGER NOT NULL,
    summary      TEXT,
    fingerprint  INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    version      INTEGER NOT NULL,
    arrival      INTEGER,
    parcel       INTEGER,
    endpoint     TEXT,
    due_at       INTEGER,
    started_at   INTEGER,
    order_key    TEXT,
    sequence     INTEGER,
    behind       INTEGER,
    failures     TEXT,
    handler_started INTEGER,
    was_due_at   INTEGER
) STRICT;
CREATE TABLE IF NOT EXISTS {table_parcels} (
    id   INTEGER PRIMARY KEY,
    head BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS {table_applied} (
    order_key TEXT NOT NULL PRIMARY KEY,
    sequence  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS {table_gone} (
    one     INTEGER PRIMARY KEY,
    arrival INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS {table_expires_at} ON {table} (expires_at);
CREATE INDEX IF NOT EXISTS {table_waiting} ON {table} (boot, due_at, arrival, received_at)
    WHERE state = 'accepted' AND behind IS NULL;
CREATE INDEX IF NOT EXISTS {table_kinds} ON {table} (endpoint, coalesce('=' || event_type, ''), boot, due_at, arrival)
    WHERE state = 'accepted' AND behind IS NULL;
CREATE INDEX IF NOT EXISTS {table_bodies} ON {table} (processed_at) WHERE state = 'completed' AND parcel IS NOT NULL;
CREATE INDEX IF NOT EXISTS {table_leased} ON {table} (lease_until, boot) WHERE state = 'running' AND arrival IS NOT NULL;
CREATE INDEX IF NOT EXISTS {table_lines} ON {table} (order_key, arrival, state)
    WHERE order_key IS NOT NULL AND state IN ('accepted', 'running');
CREATE INDEX IF NOT EXISTS {table_arrivals} ON {table} (state, arrival, expires_at) WHERE arrival IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS {table_completed} AFTER UPDATE OF state ON {table}
WHEN old.state = 'running' AND new.state = 'completed' AND new.sequence IS NOT NULL BEGIN
    INSERT INTO {table_applied} (order_key, sequence) VALUES (new.order_key, new.sequence)
        ON CONFLICT (order_key) DO UPDATE SET sequence = max(sequence, excluded.sequence);
END;
CREATE TRIGGER IF NOT EXISTS {table_finished} AFTER UPDATE OF state ON {table}
WHEN new.order_key IS NOT NULL AND new.state IN ('completed', 'failed') BEGIN
    UPDATE {table} SET behind = NULL WHERE behind IS NOT NULL AND rowid = (SELECT rowid FROM {table}
        WHERE order_key = new.order_key AND state IN ('accepted', 'running') ORDER BY arrival LIMIT 1);
END;
CREATE TRIGGER IF NOT EXISTS {table_deleted} AFTER DELETE ON {table} WHEN old.arrival IS NOT NULL BEGIN
    DELETE FROM {table_parcels} WHERE id = old.parcel;
    INSERT INTO {table_gone} (one, arrival) VALUES (1, old.arrival)
        ON CONFLICT (one) DO UPDATE SET arrival = max(arrival, excluded.arrival);
    UPDATE {table} SET behind = NULL WHERE behind IS NOT NULL AND rowid = (SELECT rowid FROM {table}
        WHERE order_key = old.order_key AND state IN ('accepted', 'running') ORDER BY arrival LIMIT 1);
END;
CREATE TRIGGER IF NOT EXISTS {table_replaced} AFTER UPDATE OF parcel ON {table}
WHEN old.arrival IS NOT NULL AND old.parcel IS NOT new.parcel BEGIN
    DELETE FROM {table_parcels} WHERE id = old.parcel;
    INSERT INTO {table_gone} (one, arrival) VALUES (1, old.arrival)
        ON CONFLICT (one) DO UPDATE SET arrival = max(arrival, excluded.arrival);
END;
