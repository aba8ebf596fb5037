WITH chosen AS MATERIALIZED (
    SELECT ctid AS place, arrival FROM webhook_events /* which */ FOR NO KEY UPDATE SKIP LOCKED
),
numbered AS MATERIALIZED (
    SELECT place, nextval('webhook_events_arrivals') AS arrival FROM (SELECT place FROM chosen ORDER BY arrival) sorted
)
-- Under nobody's token: whoever gave it up must not be taken for the one that puts it back.
UPDATE webhook_events e
   SET state = 'accepted', token = uuid_send(gen_random_uuid()), arrival = n.arrival, due_at = now(), attempts = 0,
       processed_at = NULL, summary = NULL, expires_at = NULL
  FROM numbered n
 WHERE e.ctid = n.place
