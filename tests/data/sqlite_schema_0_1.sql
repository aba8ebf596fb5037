-- The tables as the first releases of the SQLite store made them.
CREATE TABLE IF NOT EXISTS "webhook_events" (
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
    failures     TEXT
) STRICT;
CREATE TABLE IF NOT EXISTS "webhook_events_parcels" (
    id   INTEGER PRIMARY KEY,
    head BLOB NOT NULL,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS "webhook_events_applied" (
    order_key TEXT NOT NULL PRIMARY KEY,
    sequence  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS "webhook_events_gone" (
    one     INTEGER PRIMARY KEY,
    arrival INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS "webhook_events_expires_at" ON "webhook_events" (expires_at);
CREATE INDEX IF NOT EXISTS "webhook_events_waiting" ON "webhook_events" (boot, due_at, arrival, received_at)
    WHERE state = 'accepted' AND behind IS NULL;
CREATE INDEX IF NOT EXISTS "webhook_events_leased" ON "webhook_events" (lease_until, boot) WHERE state = 'running' AND arrival IS NOT NULL;
CREATE INDEX IF NOT EXISTS "webhook_events_lines" ON "webhook_events" (order_key, arrival, state)
    WHERE order_key IS NOT NULL AND state IN ('accepted', 'running');
CREATE INDEX IF NOT EXISTS "webhook_events_arrivals" ON "webhook_events" (state, arrival, expires_at) WHERE arrival IS NOT NULL;
CREATE TRIGGER IF NOT EXISTS "webhook_events_completed" AFTER UPDATE OF state ON "webhook_events"
WHEN old.state = 'running' AND new.state = 'completed' AND new.sequence IS NOT NULL BEGIN
    INSERT INTO "webhook_events_applied" (order_key, sequence) VALUES (new.order_key, new.sequence)
        ON CONFLICT (order_key) DO UPDATE SET sequence = max(sequence, excluded.sequence);
END;
CREATE TRIGGER IF NOT EXISTS "webhook_events_finished" AFTER UPDATE OF state ON "webhook_events"
WHEN new.order_key IS NOT NULL AND new.state IN ('completed', 'failed') BEGIN
    UPDATE "webhook_events" SET behind = NULL WHERE behind IS NOT NULL AND rowid = (SELECT rowid FROM "webhook_events"
        WHERE order_key = new.order_key AND state IN ('accepted', 'running') ORDER BY arrival LIMIT 1);
END;
CREATE TRIGGER IF NOT EXISTS "webhook_events_deleted" AFTER DELETE ON "webhook_events" WHEN old.arrival IS NOT NULL BEGIN
    DELETE FROM "webhook_events_parcels" WHERE id = old.parcel;
    INSERT INTO "webhook_events_gone" (one, arrival) VALUES (1, old.arrival)
        ON CONFLICT (one) DO UPDATE SET arrival = max(arrival, excluded.arrival);
    UPDATE "webhook_events" SET behind = NULL WHERE behind IS NOT NULL AND rowid = (SELECT rowid FROM "webhook_events"
        WHERE order_key = old.order_key AND state IN ('accepted', 'running') ORDER BY arrival LIMIT 1);
END;
CREATE TRIGGER IF NOT EXISTS "webhook_events_replaced" AFTER UPDATE OF parcel ON "webhook_events"
WHEN old.arrival IS NOT NULL AND old.parcel IS NOT new.parcel BEGIN
    DELETE FROM "webhook_events_parcels" WHERE id = old.parcel;
    INSERT INTO "webhook_events_gone" (one, arrival) VALUES (1, old.arrival)
        ON CONFLICT (one) DO UPDATE SET arrival = max(arrival, excluded.arrival);
END;
