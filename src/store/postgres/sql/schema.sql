CREATE TABLE IF NOT EXISTS webhook_events (
    key          text COLLATE "C" PRIMARY KEY,
    event_type   text,
    -- running, completed, failed or released; in a queue, accepted is a waiting event, and failed a dead letter;
    -- an applied row is no event: it keeps the highest completed sequence of an order whose events are deleted
    state        text NOT NULL,
    -- 16 bytes: who holds the claim, or completed it; empty, if an operator discarded the event
    token        bytea NOT NULL,
    -- from when on no lease holds the event: while it runs, when its lease ends; otherwise when its last lease was over,
    -- or when it arrived if it was not leased since
    lease_until  timestamptz NOT NULL,
    -- when the event was first claimed; in a queue, when the delivery was received, on the receiver's clock and in
    -- milliseconds
    received_at  timestamptz NOT NULL,
    processed_at timestamptz,
    attempts     integer NOT NULL,
    summary      text,
    fingerprint  bigint NOT NULL,
    -- when the row may be deleted; NULL while it is waiting, running or a dead letter
    expires_at   timestamptz,
    -- All columns below are NULL for events that are run inline.
    -- the number in the order of arrival
    arrival      bigint,
    endpoint     text,
    -- from when on a worker may lease the event: while it waits, when it is due, or infinity behind another event of
    -- its order; while it runs, when its lease ends; NULL once it has ended
    due_at       timestamptz,
    -- when the event was last leased
    started_at   timestamptz,
    head         bytea,
    body         bytea,
    order_key    text COLLATE "C",
    sequence     bigint,
    -- a line for each attempt that failed: when it began and ended, in milliseconds since 1970, and why
    failures     text
);
CREATE SEQUENCE IF NOT EXISTS webhook_events_arrivals OWNED BY webhook_events.arrival;
CREATE INDEX IF NOT EXISTS webhook_events_expires_at ON webhook_events (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_events_due ON webhook_events (due_at, arrival) WHERE due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_events_arrival ON webhook_events (arrival) WHERE arrival IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_events_dead ON webhook_events (arrival)
    WHERE state = 'failed' AND arrival IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_events_line ON webhook_events (order_key, arrival)
    WHERE order_key IS NOT NULL AND due_at IS NOT NULL;
CREATE INDEX IF NOT EXISTS webhook_events_held_up ON webhook_events (order_key) WHERE due_at = 'infinity';
-- One event of an order runs at a time, whatever the workers do.
CREATE UNIQUE INDEX IF NOT EXISTS webhook_events_first ON webhook_events (order_key)
    WHERE order_key IS NOT NULL AND state = 'running';
CREATE INDEX IF NOT EXISTS webhook_events_applied ON webhook_events (order_key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('completed', 'applied');
-- Version 2, for queued events.
-- While an event runs, when it was due before it was leased. A release makes it due since then.
ALTER TABLE webhook_events ADD COLUMN IF NOT EXISTS was_due_at timestamptz;
-- The arrival under which a handler was started in the last permitted attempt. A requeued event has another arrival.
ALTER TABLE webhook_events ADD COLUMN IF NOT EXISTS started_as bigint;
-- Until when head and body of a completed event are kept. NULL keeps them as long as the row.
ALTER TABLE webhook_events ADD COLUMN IF NOT EXISTS body_until timestamptz;
CREATE INDEX IF NOT EXISTS webhook_events_bodies ON webhook_events (body_until) WHERE body_until IS NOT NULL;
-- Hashes of endpoint and type: a row of an index holds no more than a few thousand bytes, and types are of any length.
CREATE INDEX IF NOT EXISTS webhook_events_kinds ON webhook_events
    (hashtextextended(endpoint, 0), hashtextextended(coalesce('=' || event_type, ''), 0), due_at, arrival)
    WHERE due_at < 'infinity';
COMMENT ON TABLE webhook_events IS 'tower-webhook schema 2';
