-- Leases. $1 is where the scan of the index of due events starts, in microseconds since 1970, or NULL.

-- name: in_scan
e.due_at >= coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', '-infinity')

-- The first event of its order, while no other one runs.
-- name: is_first
(e.order_key IS NULL
 OR NOT EXISTS (SELECT FROM webhook_events o
                 WHERE o.order_key = e.order_key AND o.due_at IS NOT NULL AND o.arrival < e.arrival)
AND NOT EXISTS (SELECT FROM webhook_events o
                 WHERE o.order_key = e.order_key AND o.state = 'running' AND o.key <> e.key))

-- Leases the events of `{due_events}`, under the tokens in $2.
-- name: lease
WITH due AS MATERIALIZED (
    {due_events}
),
numbered AS MATERIALIZED (
    SELECT place, row_number() OVER in_order AS n, coalesce(sum(weight) OVER in_order, 0) AS weight
      FROM due
    WINDOW in_order AS (ORDER BY due_at, arrival ROWS UNBOUNDED PRECEDING)
)
-- By `ctid` and not by key: a row that was changed since this statement began has another `ctid`, and is left alone.
UPDATE webhook_events e
   SET state = 'running',
       token = ($2::bytea[])[d.n],
       lease_until = now() + $3::bigint * interval '1 millisecond',
       due_at = now() + $3::bigint * interval '1 millisecond',
       -- An event whose lease has lapsed keeps the value from before that lease.
       was_due_at = CASE e.state WHEN 'running' THEN coalesce(e.was_due_at, e.due_at) ELSE e.due_at END,
       attempts = e.attempts + 1,
       started_at = now(),
       failures = CASE e.state WHEN 'running'
                       THEN concat(e.failures, floor(extract(epoch FROM e.started_at) * 1000)::bigint, ' ',
                                   floor(extract(epoch FROM now()) * 1000)::bigint, ' ', $4::text, E'\n')
                       ELSE e.failures END
  FROM numbered d
 WHERE e.ctid = d.place
   -- As many bytes as a reply carries within the deadline, or one event. The others are left for the next lease.
   AND (d.n = 1 OR d.weight <= $5::bigint)
RETURNING d.n, e.token, e.key, e.event_type, e.fingerprint, e.attempts,
          floor(extract(epoch FROM e.received_at) * 1000)::bigint AS received, e.head, e.body, e.order_key, e.sequence,
          coalesce(e.started_as = e.arrival, false) AS started,
          e.sequence IS NOT NULL
          AND EXISTS (SELECT FROM webhook_events o
                       WHERE o.order_key = e.order_key AND o.sequence >= e.sequence
                         AND o.state IN ('completed', 'applied')
                         -- A discarded event was not applied.
                         AND (o.state = 'applied' OR o.token <> '')) AS superseded

-- name: lockable
e.ctid AS place, e.due_at, e.arrival, octet_length(e.head)::bigint + octet_length(e.body) AS weight

-- The first $6 due events, of any kind.
-- name: first_due
SELECT {lockable}
  FROM webhook_events e
 WHERE e.due_at <= now() AND {in_scan} AND {is_first}
 ORDER BY e.due_at, e.arrival
 LIMIT $6
   FOR NO KEY UPDATE OF e SKIP LOCKED

-- The events with the keys in $6, as far as they are still due.
-- name: picked
SELECT {lockable}
  FROM unnest($6::text[]) AS a (key)
  JOIN webhook_events e ON e.key = a.key COLLATE "C"
 WHERE e.due_at <= now() AND {in_scan} AND {is_first}
   FOR NO KEY UPDATE OF e SKIP LOCKED

-- name: candidate
e.key, e.endpoint, e.event_type, (extract(epoch FROM e.due_at) * 1000000)::bigint AS due, e.arrival

-- The first $2 due events, of any kind.
-- name: candidates
SELECT {candidate}
  FROM webhook_events e
 WHERE e.due_at <= now() AND {in_scan} AND {is_first}
 ORDER BY e.due_at, e.arrival
 LIMIT $2

-- A kind as the index has it: hashes of the endpoint and of the type.
-- name: kind
hashtextextended(e.endpoint, 0), hashtextextended(coalesce('=' || e.event_type, ''), 0)

-- The kinds of the endpoints in $2, or of all, each with its first due event. One lookup in the index leads from a kind
-- to the next, however many events a kind has.
-- name: kinds
WITH RECURSIVE ranges AS MATERIALIZED (
    SELECT n, coalesce(after_endpoint, hashtextextended(name, 0), -9223372036854775808) AS after_endpoint,
           coalesce(after_type, -9223372036854775808) AS after_type,
           coalesce(hashtextextended(name, 0), 9223372036854775807) AS last
      FROM unnest($2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS a (name, after_endpoint, after_type, n)
),
kinds AS (
    SELECT r.n, r.last, 1 AS depth, k.*
      FROM ranges r,
           LATERAL (SELECT {kind}, e.endpoint
                      FROM webhook_events e
                     WHERE ({kind}) > (r.after_endpoint, r.after_type) AND hashtextextended(e.endpoint, 0) <= r.last
                       AND e.due_at < 'infinity' AND {in_scan}
                     ORDER BY {kind}, e.due_at, e.arrival
                     LIMIT 1) k (endpoint_hash, type_hash, endpoint)
    UNION ALL
    SELECT k.n, k.last, k.depth + 1, f.*
      FROM kinds k,
           LATERAL (SELECT {kind}, e.endpoint
                      FROM webhook_events e
                     WHERE ({kind}) > (k.endpoint_hash,
                                       -- An endpoint in $5 has no room: its other types are left out.
                                       CASE WHEN k.endpoint = ANY ($5::text[]) THEN 9223372036854775807
                                            ELSE k.type_hash END)
                       AND hashtextextended(e.endpoint, 0) <= k.last
                       AND e.due_at < 'infinity' AND {in_scan}
                     ORDER BY {kind}, e.due_at, e.arrival
                     LIMIT 1) f (endpoint_hash, type_hash, endpoint)
     WHERE k.depth < $6::bigint
)
SELECT k.n, k.endpoint_hash, k.type_hash, f.endpoint, f.event_type, f.due, f.arrival
  FROM kinds k
  LEFT JOIN LATERAL (
       SELECT e.endpoint, e.event_type, (extract(epoch FROM e.due_at) * 1000000)::bigint AS due, e.arrival
         FROM webhook_events e
        WHERE ({kind}) = (k.endpoint_hash, k.type_hash)
          AND e.due_at < 'infinity' AND e.due_at <= now() AND {in_scan} AND {is_first}
        ORDER BY e.due_at, e.arrival
        LIMIT 1) f ON true

-- The first due events of each of these kinds, as many as there is room for.
-- name: of_kinds
SELECT f.*
  FROM unnest($2::bigint[], $3::bigint[], $4::bigint[]) AS k (endpoint_hash, type_hash, room),
       LATERAL (SELECT {candidate}
                  FROM webhook_events e
                 WHERE ({kind}) = (k.endpoint_hash, k.type_hash)
                   AND e.due_at < 'infinity' AND e.due_at <= now() AND {in_scan} AND {is_first}
                 ORDER BY e.due_at, e.arrival
                 LIMIT k.room) f

-- The number of dead rows that are not removed yet, the server's time, and when the first event in the scan became due.
-- name: measure_scan
SELECT pg_stat_get_dead_tuples('webhook_events'::regclass) AS dead,
       (extract(epoch FROM now()) * 1000000)::bigint AS now,
       (SELECT (extract(epoch FROM e.due_at) * 1000000)::bigint
          FROM webhook_events e
         WHERE $1::bigint IS NOT NULL AND e.due_at < 'infinity' AND {in_scan}
         ORDER BY e.due_at, e.arrival LIMIT 1) AS first

-- When the first event before the start of the scan became due; of all events, if $1 is NULL.
-- name: first_before_scan
SELECT (extract(epoch FROM e.due_at) * 1000000)::bigint AS first
  FROM webhook_events e
 WHERE e.due_at < coalesce(timestamptz 'epoch' + $1::bigint * interval '1 microsecond', 'infinity')
 ORDER BY e.due_at, e.arrival LIMIT 1

-- The events that run under one of the tokens in $1. The lease, of $2 milliseconds, was asked for $3 milliseconds ago,
-- so it ends within a range of the index that is as long.
-- name: find_leased
SELECT e.key, e.token
  FROM webhook_events e
 WHERE e.due_at >= now() + ($2::bigint - $3::bigint) * interval '1 millisecond'
   AND e.due_at <= now() + $2::bigint * interval '1 millisecond'
   AND e.state = 'running' AND e.token = ANY ($1::bytea[])
