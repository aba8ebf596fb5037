-- The statements of one table. `{table}` is its name, `{table_x}` is named after it; any other name in braces is a
-- section. `?1` is the machine's boot and `?2` the boot clock, unless a section says otherwise.

-- name: never
9223372036854775807

-- Claims and settlements

-- name: read
SELECT key, event_type, state, token, boot, lease_until, received_at, attempts, fingerprint, expires_at, version,
    arrival, due_at, was_due_at, handler_started
FROM {table} WHERE key IN {rows}

-- A row is written as the version after the one that was read. A row that was written in between is left alone.
-- name: write
INSERT INTO {table} (key, event_type, state, token, boot, lease_until, received_at, processed_at, attempts, summary,
    fingerprint, expires_at, version)
SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL
ON CONFLICT (key) DO UPDATE SET {set_claim}
WHERE {table}.version = excluded.version - 1

-- name: set_claim
event_type = excluded.event_type, state = excluded.state, token = excluded.token, boot = excluded.boot,
lease_until = excluded.lease_until, received_at = excluded.received_at, processed_at = excluded.processed_at,
attempts = excluded.attempts, summary = excluded.summary, fingerprint = excluded.fingerprint,
expires_at = excluded.expires_at, version = excluded.version

-- While a row keeps its arrival, it keeps its request, and failures are appended to its log. Otherwise the row belongs
-- to another event from now on, or to one that is run inline.
-- name: write_queued
INSERT INTO {table} (key, event_type, state, token, boot, lease_until, received_at, processed_at, attempts, summary,
    fingerprint, expires_at, version, arrival, parcel, endpoint, due_at, was_due_at, order_key, sequence,
    failures, handler_started)
SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL
ON CONFLICT (key) DO UPDATE SET {set_claim},
    arrival = excluded.arrival, due_at = excluded.due_at, was_due_at = excluded.was_due_at,
    handler_started = excluded.handler_started,
    endpoint = iif({same_event}, {table}.endpoint, excluded.endpoint),
    order_key = iif({same_event}, {table}.order_key, excluded.order_key),
    sequence = iif({same_event}, {table}.sequence, excluded.sequence),
    parcel = CASE WHEN NOT ({same_event}) THEN excluded.parcel WHEN {completion_drops_body}
        THEN NULL ELSE {table}.parcel END,
    started_at = iif({same_event}, {table}.started_at, NULL),
    behind = iif({same_event}, {table}.behind, NULL),
    failures = CASE WHEN NOT ({same_event}) THEN NULL WHEN excluded.failures IS NULL THEN {table}.failures
        ELSE coalesce({table}.failures, '') || coalesce({table}.started_at, 0) || ' ' || excluded.failures END
WHERE {table}.version = excluded.version - 1

-- name: same_event
{table}.arrival IS excluded.arrival

-- name: write_requests
INSERT OR REPLACE INTO {table_parcels} (id, head, body) SELECT * FROM (VALUES {rows}) WHERE column1 IS NOT NULL

-- Only the holder of the write lock can count on from this.
-- name: last_arrival
max(coalesce((SELECT arrival FROM {table_gone} WHERE one = 1), 0),
    coalesce((SELECT max(arrival) FROM {table} WHERE state = 'accepted' AND arrival IS NOT NULL), 0),
    coalesce((SELECT max(arrival) FROM {table} WHERE state = 'running' AND arrival IS NOT NULL), 0),
    coalesce((SELECT max(arrival) FROM {table} WHERE state = 'completed' AND arrival IS NOT NULL), 0),
    coalesce((SELECT max(arrival) FROM {table} WHERE state = 'failed' AND arrival IS NOT NULL), 0))

-- Marks those of the events from arrival ?1 on that have another one of their order in front of them.
-- name: mark_ordered
UPDATE {table} SET behind = 1
WHERE rowid IN (SELECT e.rowid FROM {table} AS e WHERE e.state = 'accepted' AND e.arrival IS NOT NULL
    AND e.arrival >= ?1
    AND e.order_key IS NOT NULL AND {is_behind})

-- name: is_behind
EXISTS (SELECT 1 FROM {table} AS f INDEXED BY {table_lines} WHERE f.order_key = e.order_key AND f.arrival < e.arrival
    AND f.state IN ('accepted', 'running'))

-- Deletes some of what has expired at ?1. A running claim goes only if its lease has lapsed as well, on the boot clock.
-- name: purge
DELETE FROM {table}
WHERE rowid IN (SELECT rowid FROM {table} WHERE expires_at <= ?1
    AND (state <> 'running' OR boot <> ?2 OR lease_until IS NULL OR lease_until <= ?3) ORDER BY expires_at LIMIT ?4)

-- A trigger deletes the request that no row refers to any more.
-- name: purge_bodies
UPDATE {table} SET parcel = NULL
WHERE rowid IN (SELECT rowid FROM {table} INDEXED BY {table_bodies}
    WHERE state = 'completed' AND parcel IS NOT NULL AND processed_at <= ?1 ORDER BY processed_at LIMIT ?2)

-- Due events: each statement goes by an index that is in the order of time already

-- name: candidate
e.rowid AS id, e.arrival AS arrival, e.endpoint AS endpoint, e.event_type AS event_type

-- name: is_waiting
e.state = 'accepted' AND e.behind IS NULL AND e.arrival IS NOT NULL

-- Arrivals only ever grow, so no event gets in front of the first one of its order: if one of them runs, it is the
-- first. Most of the others are marked, and not even looked at.
-- name: is_first
(e.order_key IS NULL OR NOT {is_behind})

-- name: lapsed_since
iif(e.boot = ?1, coalesce(e.lease_until, -1), -1)

-- name: has_lapsed
e.state = 'running' AND e.arrival IS NOT NULL AND (e.boot <> ?1 OR e.lease_until IS NULL OR e.lease_until <= ?2)

-- The type as the index has it: never NULL, and different for no type and an empty one.
-- name: indexed_type
coalesce('=' || e.event_type, '')

-- The first ?3 events of any kind. Events of another boot are all due: its clock is gone.
-- name: due
SELECT * FROM (
    SELECT * FROM (SELECT {candidate}, e.due_at AS since FROM {table} AS e INDEXED BY {table_waiting}
        WHERE {is_waiting} AND e.boot = ?1 AND e.due_at <= ?2 AND {is_first} ORDER BY e.due_at, e.arrival LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT {candidate}, -1 AS since FROM {table} AS e INDEXED BY {table_waiting}
        WHERE {is_waiting} AND e.boot < ?1 AND {is_first} ORDER BY e.boot, e.due_at, e.arrival LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT {candidate}, -1 AS since FROM {table} AS e INDEXED BY {table_waiting}
        WHERE {is_waiting} AND e.boot > ?1 AND {is_first} ORDER BY e.boot, e.due_at, e.arrival LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT {candidate}, {lapsed_since} AS since FROM {table} AS e INDEXED BY {table_leased}
        WHERE {has_lapsed} AND {is_first} ORDER BY e.lease_until LIMIT ?3)
) ORDER BY since, arrival LIMIT ?3

-- The first ?3 events of each kind whose leases have lapsed. All of them are looked at: they are no more than ran at
-- once.
-- name: lapsed
SELECT * FROM (SELECT {candidate}, {lapsed_since} AS since,
        row_number() OVER (PARTITION BY e.endpoint, e.event_type ORDER BY {lapsed_since}, e.arrival) AS number
    FROM {table} AS e INDEXED BY {table_leased} WHERE {has_lapsed} AND {is_first})
WHERE number <= ?3 ORDER BY since, arrival

-- The endpoints that have waiting events: from one to the next by the index, past all events in between.
-- name: endpoints
WITH RECURSIVE found (endpoint) AS (
    SELECT (SELECT e.endpoint FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint IS NOT NULL ORDER BY e.endpoint LIMIT 1)
    UNION ALL
    SELECT (SELECT e.endpoint FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint > found.endpoint ORDER BY e.endpoint LIMIT 1)
    FROM found WHERE endpoint IS NOT NULL)
SELECT endpoint FROM found WHERE endpoint IS NOT NULL

-- The types that have due events at the endpoints in ?3, a JSON array, and the position of the first event of each.
-- name: kinds
WITH RECURSIVE found (endpoint, type) AS (
    SELECT value, (SELECT {indexed_type} FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint = json_each.value ORDER BY {indexed_type} LIMIT 1) FROM json_each(?3)
    UNION ALL
    SELECT endpoint, (SELECT {indexed_type} FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint = found.endpoint AND {indexed_type} > found.type
            ORDER BY {indexed_type} LIMIT 1)
    FROM found WHERE type IS NOT NULL),
heads AS MATERIALIZED (SELECT endpoint, type, coalesce(
        (SELECT e.rowid FROM {table} AS e INDEXED BY {table_kinds} WHERE {is_waiting} AND e.endpoint = found.endpoint
            AND {indexed_type} = found.type AND e.boot < ?1 AND {is_first}
                ORDER BY e.boot, e.due_at, e.arrival LIMIT 1),
        (SELECT e.rowid FROM {table} AS e INDEXED BY {table_kinds} WHERE {is_waiting} AND e.endpoint = found.endpoint
            AND {indexed_type} = found.type AND e.boot > ?1 AND {is_first}
                ORDER BY e.boot, e.due_at, e.arrival LIMIT 1),
        (SELECT e.rowid FROM {table} AS e INDEXED BY {table_kinds} WHERE {is_waiting} AND e.endpoint = found.endpoint
            AND {indexed_type} = found.type AND e.boot = ?1 AND e.due_at <= ?2 AND {is_first}
            ORDER BY e.due_at, e.arrival LIMIT 1)) AS id
    FROM found WHERE type IS NOT NULL)
SELECT heads.endpoint AS endpoint, heads.type AS indexed_type, iif(e.boot = ?1, e.due_at, -1) AS since, e.arrival AS
    arrival
FROM heads CROSS JOIN {table} AS e ON e.rowid = heads.id

-- The first ?3 events of endpoint ?4 and type ?5.
-- name: of_kind
SELECT * FROM (
    SELECT * FROM (SELECT {candidate}, e.due_at AS since FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint = ?4 AND {indexed_type} = ?5 AND e.boot = ?1 AND e.due_at <= ?2 AND {is_first}
        ORDER BY e.due_at, e.arrival LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT {candidate}, -1 AS since FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint = ?4 AND {indexed_type} = ?5 AND e.boot < ?1 AND {is_first}
        ORDER BY e.boot, e.due_at, e.arrival LIMIT ?3)
    UNION ALL
    SELECT * FROM (SELECT {candidate}, -1 AS since FROM {table} AS e INDEXED BY {table_kinds}
        WHERE {is_waiting} AND e.endpoint = ?4 AND {indexed_type} = ?5 AND e.boot > ?1 AND {is_first}
        ORDER BY e.boot, e.due_at, e.arrival LIMIT ?3)
) ORDER BY since, arrival LIMIT ?3

-- Leases

-- Leases the events in ?5, a JSON array of row numbers, until ?2. They are due again then. A release puts an event back
-- to `was_due_at`: -1 if that was by another boot's clock. An event whose lease has lapsed keeps the value from before
-- that lease; one that an earlier release of this crate leased has it in `due_at`.
-- name: lease
UPDATE {table} SET state = 'running', token = randomblob(16), boot = ?1, lease_until = ?2, started_at = ?3,
    attempts = attempts + 1, version = version + 1, due_at = ?2,
    was_due_at = CASE WHEN boot <> ?1 THEN -1 WHEN state = 'running' THEN coalesce(was_due_at, due_at) ELSE due_at END,
    failures = iif(state = 'running', coalesce(failures, '') || coalesce(started_at, 0) || ' ' || ?3 || ' ' || ?4,
        failures)
WHERE rowid IN ({fitting})
RETURNING rowid AS id, key, token, attempts, event_type, fingerprint, received_at, order_key, sequence, handler_started,
    (SELECT head FROM {table_parcels} WHERE id = {table}.parcel) AS head,
    (SELECT body FROM {table_parcels} WHERE id = {table}.parcel) AS body,
    EXISTS (SELECT 1 FROM {table_applied} AS a
        WHERE a.order_key = {table}.order_key AND a.sequence >= {table}.sequence) AS superseded

-- The first of the picked events whose requests are 4 MiB together, or the first alone if it is larger. All of them are
-- read under the write lock, and have to come before the worker's patience ends: a lease that is too large would be too
-- large every time. The length of a blob is known without reading it.
-- name: fitting
SELECT id FROM (SELECT id, size, sum(size) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING) AS all_of_them
    FROM (SELECT picked.value AS id, picked.key AS place, coalesce((SELECT length(p.head) + length(p.body)
        FROM {table} AS e CROSS JOIN {table_parcels} AS p ON p.id = e.parcel WHERE e.rowid = picked.value), 0) AS size
        FROM json_each(?5) AS picked))
WHERE all_of_them <= 4194304 OR all_of_them = size

-- name: bury_unreadable
UPDATE {table} SET state = 'failed', lease_until = NULL, due_at = NULL, was_due_at = NULL, processed_at = ?2,
    summary = ?3, expires_at = {never}, version = version + 1
WHERE rowid = ?1

-- Operators. `{matching}` is the condition of a filter: ?1 is the wall clock, ?2 to ?6 are the filter's values, and
-- bodies of events that were completed by ?7 are gone.

-- name: remembered
arrival IS NOT NULL AND expires_at > ?1

-- name: has_body
EXISTS (SELECT 1 FROM {table_parcels} WHERE id = parcel) AND (?7 IS NULL OR processed_at > ?7)

-- name: listed
key, event_type, state, boot, due_at, received_at, processed_at, attempts, summary, arrival, order_key, sequence

-- Each state has its own index, in the order of arrival.
-- name: list_state
SELECT * FROM (SELECT {listed} FROM {table} WHERE {matching} AND arrival > ?8 ORDER BY arrival LIMIT ?9)

-- name: get
SELECT {listed}, failures, head, body
FROM {table} LEFT JOIN {table_parcels} ON {table_parcels}.id = {table}.parcel
    AND (?3 IS NULL OR NOT (state = 'completed' AND processed_at <= ?3))
WHERE key = ?2 AND {remembered}

-- name: count_waiting
SELECT count(*) FROM (SELECT 1 FROM {table} WHERE state = 'accepted' AND arrival IS NOT NULL LIMIT ?1)

-- name: counts
SELECT 'accepted' AS state, count(*) AS number, (SELECT min(received_at) FROM {table} INDEXED BY {table_waiting}
        WHERE state = 'accepted' AND behind IS NULL AND (boot <> ?2 OR due_at <= ?3)) AS oldest
    FROM {table} WHERE state = 'accepted' AND {remembered}
UNION ALL
SELECT 'running' AS state, count(*) AS number, NULL AS oldest FROM {table} WHERE state = 'running' AND {remembered}
UNION ALL
SELECT 'completed' AS state, count(*) AS number, NULL AS oldest FROM {table} WHERE state = 'completed' AND {remembered}
UNION ALL
SELECT 'failed' AS state, count(*) AS number, NULL AS oldest FROM {table} WHERE state = 'failed' AND {remembered}

-- name: count_without_body
SELECT count(*) FROM {table} WHERE {matching} AND NOT ({has_body})

-- name: read_last_arrival
SELECT {last_arrival}

-- The changes are to the first ?9 events that arrived up to ?8: an event that is requeued meanwhile is not meant.

-- The token is nobody's: the worker that gave the event up must not be taken for the one that puts it back.
-- name: requeue
UPDATE {table} SET state = 'accepted', handler_started = NULL, token = randomblob(16), boot = ?10, due_at = ?11,
    was_due_at = NULL, attempts = 0, lease_until = NULL, started_at = NULL, behind = NULL, processed_at = NULL, summary = NULL, expires_at = {never},
    version = version + 1, arrival = anew.arrival
FROM (SELECT rowid AS id, {last_arrival} + row_number() OVER (ORDER BY arrival) AS arrival
    FROM (SELECT rowid, arrival FROM {table} WHERE {matching} AND arrival <= ?8 ORDER BY arrival LIMIT ?9)) AS anew
WHERE {table}.rowid = anew.id

-- name: discard
UPDATE {table} SET state = 'completed', token = randomblob(16), due_at = NULL, processed_at = ?1, summary = ?10,
    expires_at = ?11, version = version + 1{drop_body}
WHERE rowid IN (SELECT rowid FROM {table} WHERE {matching} AND arrival <= ?8 ORDER BY arrival LIMIT ?9)

-- name: forget
DELETE FROM {table}
WHERE rowid IN (SELECT rowid FROM {table} WHERE {matching} AND arrival <= ?8 ORDER BY arrival LIMIT ?9)
