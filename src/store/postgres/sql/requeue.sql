WITH chosen AS MATERIALIZED (
    SELECT ctid AS place, arrival, state, token, order_key, sequence,
           state = 'completed' AND (body IS NULL OR coalesce(body_until <= now(), false)) AS without_body
      FROM webhook_events /* which */ FOR NO KEY UPDATE SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT place, nextval('webhook_events_arrivals') AS arrival FROM (SELECT place FROM chosen WHERE NOT without_body ORDER BY arrival) sorted
),
-- What was completed before stays applied, and what is run again is old news to itself.
applied AS (
    INSERT INTO webhook_events AS e (key, state, token, lease_until, received_at, attempts, fingerprint, order_key, sequence)
    SELECT 'applied ' || order_key, 'applied', '', now(), now(), 0, 0, order_key, max(sequence)
      FROM chosen
     WHERE NOT without_body AND state = 'completed' AND token <> '' AND order_key IS NOT NULL AND sequence IS NOT NULL
     GROUP BY order_key
     ORDER BY order_key
    ON CONFLICT (key) DO UPDATE SET sequence = excluded.sequence WHERE e.sequence < excluded.sequence
),
-- Under nobody's token: whoever gave it up must not be taken for the one that puts it back.
changed AS (
    UPDATE webhook_events e
       SET state = 'accepted', token = uuid_send(gen_random_uuid()), arrival = n.arrival, lease_until = now(),
           due_at = CASE WHEN e.order_key IS NULL THEN now() ELSE 'infinity' END, attempts = 0,
           processed_at = NULL, summary = NULL, expires_at = NULL, was_due_at = NULL, body_until = NULL
      FROM numbered n
     WHERE e.ctid = n.place
    RETURNING e.order_key
)
SELECT count(*), coalesce(array_agg(DISTINCT order_key) FILTER (WHERE order_key IS NOT NULL), '{}'),
       (SELECT count(*) FROM chosen WHERE without_body)
  FROM changed
