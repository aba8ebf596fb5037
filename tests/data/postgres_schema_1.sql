CREATE TABLE IF NOT EXISTS webhook_events (
    key          text COLLATE "C" PRIMARY KEY,
    event_type   text,
    -- running, completed, failed or released; of an inbox, accepted while it waits, and failed is a dead letter;
    -- applied is no event, but the highest sequence that was completed of an order whose events are deleted
    state        text NOT NULL,
    -- 16 bytes: who holds the claim, or completed it; none, if an operator discarded the event
    token        bytea NOT NULL,
    -- when the lease ends; while it waits in an inbox, since when it has been waiting
    lease_until  timestamptz NOT NULL,
    -- when it was first claimed; of an inbox, when the delivery was received, on the receiver's clock and in milliseconds
    received_at  timestamptz NOT NULL,
    processed_at timestamptz,
    attempts     integer NOT NULL,
    summary      text,
    fingerprint  bigint NOT NULL,
    -- when the row may be deleted; never, while it is running or a dead letter
    expires_at   timestamptz,
    -- All of the following is there for events of an inbox only. The number in the order of arrival, which tells them from others:
    arrival      bigint,
    endpoint     text,
    -- from when a worker may lease it: while it waits, when it is due, and infinity if it is held up behind another event of its
    -- order; while it runs, when its lease ends; then never
    due_at       timestamptz,
    -- when it was last leased
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
-- Of one order, one at a time: whatever workers do.
CREATE UNIQUE INDEX IF NOT EXISTS webhook_events_first ON webhook_events (order_key)
    WHERE order_key IS NOT NULL AND state = 'running';
CREATE INDEX IF NOT EXISTS webhook_events_applied ON webhook_events (order_key, sequence)
    WHERE sequence IS NOT NULL AND state IN ('completed', 'applied');
