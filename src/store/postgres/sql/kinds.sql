-- The kinds of some endpoints, or of all, each with its first event that is due. One look into the index leads from a kind to the
-- next, however many events there are of it.
WITH RECURSIVE ranges AS MATERIALIZED (
    SELECT n, coalesce(after_endpoint, hashtextextended(name, 0), -9223372036854775808) AS after_endpoint,
           coalesce(after_type, -9223372036854775808) AS after_type,
           coalesce(hashtextextended(name, 0), 9223372036854775807) AS last
      FROM unnest($2::text[], $3::bigint[], $4::bigint[]) WITH ORDINALITY AS a (name, after_endpoint, after_type, n)
),
kinds AS (
    SELECT r.n, r.last, 1 AS depth, k.*
      FROM ranges r,
           LATERAL (SELECT /* kind */, e.endpoint
                      FROM webhook_events e
                     WHERE (/* kind */) > (r.after_endpoint, r.after_type) AND hashtextextended(e.endpoint, 0) <= r.last
                       AND e.due_at < 'infinity' AND /* from the bound */
                     ORDER BY /* kind */, e.due_at, e.arrival
                     LIMIT 1) k (endpoint_hash, type_hash, endpoint)
    UNION ALL
    SELECT k.n, k.last, k.depth + 1, f.*
      FROM kinds k,
           LATERAL (SELECT /* kind */, e.endpoint
                      FROM webhook_events e
                     WHERE (/* kind */) > (k.endpoint_hash,
                                           -- Of an endpoint without room, no other type is looked at.
                                           CASE WHEN k.endpoint = ANY ($5::text[]) THEN 9223372036854775807 ELSE k.type_hash END)
                       AND hashtextextended(e.endpoint, 0) <= k.last
                       AND e.due_at < 'infinity' AND /* from the bound */
                     ORDER BY /* kind */, e.due_at, e.arrival
                     LIMIT 1) f (endpoint_hash, type_hash, endpoint)
     WHERE k.depth < $6::bigint
)
SELECT k.n, k.endpoint_hash, k.type_hash, f.endpoint, f.event_type, f.due, f.arrival
  FROM kinds k
  LEFT JOIN LATERAL (
       SELECT e.endpoint, e.event_type, (extract(epoch FROM e.due_at) * 1000000)::bigint AS due, e.arrival
         FROM webhook_events e
        WHERE (/* kind */) = (k.endpoint_hash, k.type_hash)
          AND e.due_at < 'infinity' AND e.due_at <= now() AND /* from the bound */ AND /* in turn */
        ORDER BY e.due_at, e.arrival
        LIMIT 1) f ON true
