-- The scripts of operators and of housekeeping.

-- Pages in the order of arrival, from the first event on if `after` is empty.
-- name: pages
-- needs: repair
local function dead_after(after, count)
  return redis.call('ZRANGEBYLEX', DEAD, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
end

local function entries_after(after, count)
  return redis.call('XRANGE', EVENTS, after == '' and '-' or '(' .. id_of(after), '+', 'COUNT', count)
end

-- Returns some events in the order of their arrival. ARGV: prefix, which events, after which arrival, how many.
-- name: browse
-- needs: pages
local which, after, count = ARGV[2], ARGV[3], tonumber(ARGV[4])
-- More running events are not sorted here; they are found in the stream.
local FEW = 1000

local function running()
  local arrivals = {}
  for _, arrival in ipairs(redis.call('ZRANGE', RUNNING, 0, -1)) do
    if arrival > after then
      arrivals[#arrivals + 1] = arrival
    end
  end
  table.sort(arrivals)
  for index = #arrivals, count + 1, -1 do
    arrivals[index] = nil
  end
  return arrivals
end

local arrivals, entries, is_stream = {}, {}, false
if which == 'dead' then
  arrivals = dead_after(after, count)
elseif which == 'running' and redis.call('ZCARD', RUNNING) <= FEW then
  arrivals = running()
else
  is_stream = true
  for index, item in ipairs(entries_after(after, count)) do
    arrivals[index], entries[index] = arrival_of_id(item[1]), read_entry(item[1], item[2]) or false
  end
end
local rows = {}
for index, arrival in ipairs(arrivals) do
  local entry = is_stream and entries[index] or not is_stream and entry_at(arrival)
  local record = entry and read_record(key_of(entry.key))
  if record and record.arrival == arrival then
    rows[#rows + 1] = { entry.key, entry.type, entry.received, record.value }
  elseif not is_stream then
    -- It does not belong to the set that lists it.
    pcall(repair, arrival, entry or nil)
  end
end
return { rows, #arrivals == count and arrivals[count] or false }

-- Returns everything about one event but its request. KEYS: the record. ARGV: prefix.
-- name: get
-- needs: transitions
local record = read_record(KEYS[1])
local entry = record and record.arrival and entry_at(record.arrival)
if not entry or key_of(entry.key) ~= KEYS[1] then
  return false
end
return { record.value, entry.key, entry.type, entry.received, entry.encoded,
  redis.call('HGET', FAILURES, record.arrival) }

-- Makes ended events wait again. Returns how many, and how many have no request any more. ARGV: prefix, which states,
-- then of each event the key, the arrival and a token.
-- name: requeue
-- needs: transitions
local requeued, without_body, at = 0, 0, now()

local function requeue(key, record, entry, token)
  local old = record.arrival
  note_change(old)
  redis.call('PERSIST', REQUEST .. entry.request)
  -- The old entry is deleted last: if the script fails, one of the two is there.
  record.arrival = append(entry.encoded)
  note_change(record.arrival)
  local log = redis.call('HGET', FAILURES, old)
  if log then
    redis.call('HSET', FAILURES, record.arrival, log)
  end
  -- A token that no worker has: the one that buried the event must not be able to release it.
  record.token, record.attempts, record.time, record.is_ordered = token, 0, at, entry.order ~= ''
  write_unfinished(key, record, 'w', at)
  add_in_order(record.arrival, entry, record)
  redis.call('ZREM', record.state == 'f' and DEAD or COMPLETED, old)
  redis.call('HDEL', FAILURES, old)
  redis.call('XDEL', EVENTS, id_of(old))
  requeued = requeued + 1
end

return noting_failure(function()
  for index = 3, #ARGV, 3 do
    local key, arrival = key_of(ARGV[index]), ARGV[index + 1]
    local record = read_record(key)
    local is_meant = record and record.arrival == arrival and string.find(ARGV[2], record.state, 1, true)
    local entry = is_meant and entry_at(arrival)
    if entry and redis.call('EXISTS', REQUEST .. entry.request) == 1 then
      requeue(key, record, entry, ARGV[index + 2])
    elseif entry then
      without_body = without_body + 1
    end
  end
  return { requeued, without_body }
end)

-- Completes waiting and dead events without running them, and returns how many. ARGV: prefix, retention, how long the
-- request is kept, summary, then of each event the key, the arrival and a token.
-- name: discard
-- needs: transitions
local discarded, at, retention, kept = 0, now(), tonumber(ARGV[2]), tonumber(ARGV[3])
return noting_failure(function()
  for index = 5, #ARGV, 3 do
    local key, arrival = key_of(ARGV[index]), ARGV[index + 1]
    local record = read_record(key)
    local is_meant = record and record.arrival == arrival and (record.state == 'f' or is_waiting(record))
    local entry = is_meant and entry_at(arrival)
    if entry then
      note_change(arrival)
      -- A token that no worker has: the last holder must not take this for its own completion.
      record.token = ARGV[index + 2]
      write_record(key, 'c', record, at, ARGV[4], 'PX', retention)
      redis.call('ZADD', COMPLETED, string.format('%d', at + retention), arrival)
      redis.call('ZREM', DEAD, arrival)
      expire_request(entry, kept)
      remove_all_due(arrival, entry)
      leave_order(arrival, entry)
      discarded = discarded + 1
    end
  end
  return discarded
end)

-- Deletes completed and dead events, and returns how many. ARGV: prefix, then of each event the key and the arrival.
-- name: forget
-- needs: transitions
local forgotten, soon = 0, string.format('%d', now() + 60000)
return noting_failure(function()
  for index = 2, #ARGV, 2 do
    local key, arrival = key_of(ARGV[index]), ARGV[index + 1]
    local record = read_record(key)
    if record and record.arrival == arrival and record.state ~= 'a' then
      local entry = entry_at(arrival)
      note_change(arrival)
      -- As if its retention ended soon: if the script fails after the record is deleted, a purge deletes the rest.
      redis.call('ZADD', COMPLETED, soon, arrival)
      redis.call('ZREM', DEAD, arrival)
      if entry then
        delete_request(entry)
      end
      redis.call('DEL', key)
      if entry then
        delete_event(arrival, entry)
      else
        redis.call('ZREM', COMPLETED, arrival)
        redis.call('HDEL', FAILURES, arrival)
      end
      forgotten = forgotten + 1
    end
  end
  return forgotten
end)

-- Returns how many events wait: all but those that run or have ended. ARGV: prefix.
-- name: waiting
-- needs: transitions
return redis.call('XLEN', EVENTS) - redis.call('ZCARD', RUNNING) - redis.call('ZCARD', COMPLETED)
  - redis.call('ZCARD', DEAD)

-- Returns how many events are waiting, running, completed and dead, when the oldest due one was received, and the last
-- arrival. ARGV: prefix.
-- name: counts
-- needs: transitions, due
local at, LOOKED_AT = now(), 16
purge(at, 100)

local function oldest_received()
  local oldest
  begin_due(nil, at)
  for _ = 1, LOOKED_AT do
    local event = next_due(function() return true end, {})
    local entry = event and entry_at(event.arrival)
    local record = entry and unfinished_record(event.arrival, entry)
    if record and is_waiting(record) and not (oldest and oldest <= tonumber(entry.received)) then
      oldest = tonumber(entry.received)
    end
    if not event then
      break
    end
  end
  return oldest and string.format('%d', oldest)
end

local running, dead, completed =
  redis.call('ZCARD', RUNNING), redis.call('ZCARD', DEAD), redis.call('ZCARD', COMPLETED)
local waiting = redis.call('XLEN', EVENTS) - running - completed - dead
local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
return { waiting, running, redis.call('ZCOUNT', COMPLETED, string.format('%d', at), '+inf'), dead,
  waiting > 0 and oldest_received() or false, last and arrival_of_id(last[1]) or false }

-- Deletes the remains of some completed events whose retention is over. Returns whether there may be more.
-- ARGV: prefix, how many.
-- name: purge
-- needs: transitions
return purge(now(), tonumber(ARGV[2]))

-- Repairs some events in the order of their arrival, and then the dead ones. Returns where to go on. ARGV: prefix;
-- after which arrival, with a 'd' before it among the dead ones; how many.
-- name: sweep
-- needs: pages
local is_dead, after, count = string.match(ARGV[2], '^(d?)(%d*)$')
count = tonumber(ARGV[3])
local last

local function sweep(arrival, entry)
  pcall(repair, arrival, entry)
  last = arrival
end

if is_dead == 'd' then
  for _, arrival in ipairs(dead_after(after, count)) do
    sweep(arrival)
  end
  return last and 'd' .. last or ''
end
for _, item in ipairs(entries_after(after, count)) do
  local entry = read_entry(item[1], item[2])
  if entry then
    sweep(arrival_of_id(item[1]), entry)
  else
    last = arrival_of_id(item[1])
  end
end
return last or 'd'
