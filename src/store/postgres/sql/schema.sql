CREATE TABLE IF NOT EXISTS webhook_events (
    key          text COLLATE "C" PRIMARY KEY,
    event_type   text,
    -- running, completed, failed or released
    state        text NOT NULL,
    -- 16 bytes: who holds the claim, or completed it
    token        bytea NOT NULL,
    lease_until  timestamptz NOT NULL,
    received_at  timestamptz NOT NULL,
    processed_at timestamptz,
    attempts     integer NOT NULL,
    summary      text,
    fingerprint  bigint NOT NULL,
    -- when the row may be deleted; never, while it is running
    expires_at   timestamptz
);
CREATE INDEX IF NOT EXISTS webhook_events_expires_at ON webhook_events (expires_at) WHERE expires_at IS NOT NULL;
