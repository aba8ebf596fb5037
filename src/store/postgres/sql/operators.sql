-- The queries and changes of operators, and the purge. `{matching}` is the condition of a filter.

-- Events are remembered until their retention is over, whether they are purged by then or not.
-- name: remembered
(expires_at IS NULL OR expires_at > now())

-- name: listed
key, state, arrival, event_type, floor(extract(epoch FROM received_at) * 1000)::bigint AS received,
CASE WHEN state = 'accepted' AND due_at < 'infinity' THEN floor(extract(epoch FROM due_at) * 1000)::bigint END AS due,
floor(extract(epoch FROM processed_at) * 1000)::bigint AS processed, attempts, summary

-- A body counts as gone when its retention is over, whether it is removed by then or not.
-- name: without_body
state = 'completed' AND (body IS NULL OR coalesce(body_until <= now(), false))

-- name: has_body
state <> 'completed' OR body_until IS NULL OR body_until > now()

-- name: list
SELECT {listed} FROM webhook_events {matching}

-- name: get
SELECT {listed}, failures, order_key, sequence, {without_body} AS without_body,
       CASE WHEN {has_body} THEN head END AS head, CASE WHEN {has_body} THEN body END AS body
  FROM webhook_events
 WHERE key = $1 AND arrival IS NOT NULL AND {remembered}

-- name: counts
SELECT count(*) FILTER (WHERE state = 'accepted') AS waiting,
       count(*) FILTER (WHERE state = 'running') AS running,
       count(*) FILTER (WHERE state = 'completed') AS completed,
       count(*) FILTER (WHERE state = 'failed') AS dead,
       floor(extract(epoch FROM now() - min(received_at)
           FILTER (WHERE state = 'accepted' AND (due_at <= now() OR due_at = 'infinity'))) * 1000)::bigint AS oldest
  FROM webhook_events
 WHERE arrival IS NOT NULL AND {remembered}

-- The count of changed events, and their orders. A requeue adds how many events had no body.
-- name: changed_rows
count(*), coalesce(array_agg(DISTINCT order_key) FILTER (WHERE order_key IS NOT NULL), '{}')

-- The sequence of a requeued completed event is kept in the `applied` row of its order. Its next lease therefore
-- returns it as superseded, and the worker completes it without a run.
-- name: requeue
WITH chosen AS MATERIALIZED (
    SELECT ctid AS place, arrival, state, token, order_key, sequence, {without_body} AS without_body
      FROM webhook_events {matching} FOR NO KEY UPDATE SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT place, nextval('webhook_events_arrivals') AS arrival
      FROM (SELECT place FROM chosen WHERE NOT without_body ORDER BY arrival) sorted
),
applied AS (
    {apply}
    SELECT 'applied ' || order_key, 'applied', '', now(), now(), 0, 0, order_key, max(sequence)
      FROM chosen
     WHERE NOT without_body AND state = 'completed' AND token <> '' AND order_key IS NOT NULL AND sequence IS NOT NULL
     GROUP BY order_key
     ORDER BY order_key
    {keep_highest}
),
-- The new token is unknown to all callers: the one that buried the event must not look like the one that requeued it.
changed AS (
    UPDATE webhook_events e
       SET state = 'accepted', token = uuid_send(gen_random_uuid()), arrival = n.arrival, lease_until = now(),
           due_at = CASE WHEN e.order_key IS NULL THEN now() ELSE 'infinity' END, attempts = 0,
           processed_at = NULL, summary = NULL, expires_at = NULL, was_due_at = NULL, body_until = NULL
      FROM numbered n
     WHERE e.ctid = n.place
    RETURNING e.order_key
)
SELECT {changed_rows}, (SELECT count(*) FROM chosen WHERE without_body) FROM changed

-- The token becomes empty: nobody has completed the event, and its sequence was not applied.
-- name: discard
WITH changed AS (
    UPDATE webhook_events
       SET state = 'completed', token = '', due_at = NULL, processed_at = now(), summary = '{discarded}',
           expires_at = now() + $1::bigint * interval '1 millisecond',
           head = CASE WHEN {completed_body_retention} = 0 THEN NULL ELSE head END,
           body = CASE WHEN {completed_body_retention} = 0 THEN NULL ELSE body END,
           body_until = CASE WHEN {completed_body_retention} > 0
                             THEN now() + {completed_body_retention} * interval '1 millisecond' END
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM webhook_events {matching} FOR NO KEY UPDATE SKIP LOCKED))
    RETURNING order_key
)
SELECT {changed_rows}, 0::bigint FROM changed

-- Deletes events: those that an operator forgets, or those that have expired.
-- name: delete
WITH deleted AS (
    DELETE FROM webhook_events
     WHERE ctid = ANY (ARRAY(SELECT ctid FROM webhook_events {matching} FOR UPDATE SKIP LOCKED))
    RETURNING state, token, order_key, sequence
),
applied AS (
    {apply}
    SELECT 'applied ' || order_key, 'applied', '', now(), now(), 0, 0, order_key, max(sequence)
      FROM deleted
     WHERE state = 'completed' AND token <> '' AND order_key IS NOT NULL AND sequence IS NOT NULL
     GROUP BY order_key
     ORDER BY order_key
    {keep_highest}
)
SELECT count(*) FROM deleted

-- name: expired
WHERE expires_at < now() ORDER BY expires_at LIMIT $1

-- Removes heads and bodies of completed events that are kept for a shorter time than the records.
-- name: purge_bodies
WITH chosen AS MATERIALIZED (
    SELECT ctid AS place
      FROM webhook_events
     WHERE body_until <= now() AND state = 'completed'
     ORDER BY body_until LIMIT $1
       FOR NO KEY UPDATE SKIP LOCKED
),
changed AS (
    UPDATE webhook_events e SET head = NULL, body = NULL, body_until = NULL FROM chosen c WHERE e.ctid = c.place
    RETURNING 1
)
SELECT count(*) FROM changed
