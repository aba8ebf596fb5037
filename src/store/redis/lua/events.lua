-- The sections that the scripts of a queue share. An arrival is the number of an event's arrival. A key is that of an
-- event's record, unless its name says otherwise.

-- ARGV[1] is the store's prefix. Every key begins with it, so that a hash tag in it keeps them in one slot.
-- name: base
if not redis.REDIS_VERSION_NUM then
  return redis.error_reply('ERR the inbox needs Redis 7.0 or later, or Valkey')
end
local PREFIX = ARGV[1] .. 'inbox:'
local EVENTS, UNSETTLED = PREFIX .. 'events', PREFIX .. 'unsettled'
local REQUEST, ORDER = PREFIX .. 'request:', PREFIX .. 'order'
-- The two classes of waiting events. Those that were never tried are due whatever the clock says: it may have been set
-- back since they arrived. The others are due at their time.
local UNTRIED, TRIED = 'u', 't'

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Returns the value under a record's key: false if there is none; nil if it is not a string, and so not a record.
local function get_record(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then
    return value
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value)
  end
  return nil
end

-- Makes an arrival of the two parts of an entry's id: always 19 digits, so that arrivals sort as text.
local function arrival_of(ms, number)
  return ms .. string.sub('000000', #number + 1) .. number
end

-- Appends an entry to the stream, and returns its arrival.
local function append(encoded)
  local id = redis.call('XADD', EVENTS, '*', 'e', encoded)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  if #number > 6 then
    -- A million entries within a millisecond: the server's clock was set back. An arrival has no room for more.
    redis.call('XDEL', EVENTS, id)
    ms, number = string.format('%d', ms + 1), '0'
    redis.call('XADD', EVENTS, ms .. '-0', 'e', encoded)
  end
  return arrival_of(ms, number)
end

local function due_key(class, endpoint, event_type)
  return PREFIX .. 'due:' .. class .. #endpoint .. ':' .. endpoint .. event_type
end

local function types_key(class, endpoint)
  return PREFIX .. 'types:' .. class .. endpoint
end

local function endpoints_key(class)
  return PREFIX .. 'endpoints:' .. class
end

-- Adds an event to those that can be leased. Each type and each endpoint has the time of its first event.
local function add_due(class, endpoint, event_type, arrival, due)
  redis.call('ZADD', due_key(class, endpoint, event_type), due, arrival)
  redis.call('ZADD', types_key(class, endpoint), 'LT', due, event_type)
  redis.call('ZADD', endpoints_key(class), 'LT', due, endpoint)
end

-- Records and entries.
-- name: records
-- needs: base
local RUNNING, COMPLETED, DEAD = PREFIX .. 'running', PREFIX .. 'completed', PREFIX .. 'dead'
local APPLIED, FAILURES = PREFIX .. 'applied', PREFIX .. 'failures'
-- Each version of this crate may write entries in a way of its own. They begin alike in all versions.
local VERSION = '1'
-- A stored request of more bytes is large.
local LARGE = 64 * 1024

-- The arrivals that this script changes. A script that fails is not rolled back: it notes these, and the next lease
-- repairs the events by their records.
local changed = {}

local function note_change(arrival)
  changed[#changed + 1] = arrival
end

local function noting_failure(change)
  local is_done, result = pcall(change)
  if not is_done then
    if #changed > 0 then
      redis.pcall('SADD', UNSETTLED, unpack(changed))
    end
    error(result)
  end
  return result
end

local function arrival_of_id(id)
  return arrival_of(string.match(id, '^(%d+)%-(%d+)$'))
end

local function id_of(arrival)
  return string.sub(arrival, 1, -7) .. '-' .. tonumber(string.sub(arrival, -6))
end

local function key_of(event_key)
  return ARGV[1] .. (string.find(event_key, '{', 1, true) and '{}' or '') .. event_key
end

-- Reads a record. It has no arrival if it is an inline claim's, or if another version wrote it.
local function read_record(key)
  local value = get_record(key)
  if not value then
    return nil
  end
  local record = { value = value, state = string.sub(value, 1, 1), token = string.sub(value, 3, 24),
    fingerprint = string.sub(value, 26, 36) }
  local arrival, attempts, time, rest = string.match(value, '^@(%d+) (%d+) (%d+) (.*)$', 38)
  if not arrival then
    return record
  end
  record.arrival, record.attempts, record.time = arrival, tonumber(attempts), tonumber(time)
  if record.state == 'a' then
    local mode, flags, was_due_at = string.match(rest, '^([wr])(%a*) ?(%d*)$')
    record.mode, record.was_due_at = mode, tonumber(was_due_at) or record.time
    record.is_ordered = flags and string.find(flags, 'o', 1, true) ~= nil
    record.is_started = flags and string.find(flags, 's', 1, true) ~= nil
  end
  return record
end

local function is_waiting(record)
  return record.mode == 'w'
end

local function is_running(record)
  return record.mode == 'r'
end

local function write_record(key, state, record, time, rest, ...)
  redis.call('SET', key, state .. ':' .. record.token .. ':' .. record.fingerprint .. ':@' .. record.arrival .. ' ' ..
    record.attempts .. ' ' .. string.format('%d', time) .. ' ' .. rest, ...)
end

-- Writes the record of an event that waits since or until a time, or runs since then. A running event keeps its due
-- time from before the lease.
local function write_unfinished(key, record, mode, time)
  local rest = mode .. (record.is_ordered and 'o' or '') .. (record.is_started and 's' or '')
  if mode == 'r' then
    rest = rest .. string.format(' %d', record.was_due_at)
  end
  write_record(key, 'a', record, time, rest)
end

-- Reads an entry of the stream; nil if another program added it. Of another version's entry, it reads the part that all
-- versions share.
local function read_entry(id, fields)
  if #fields ~= 2 or fields[1] ~= 'e' then
    return nil
  end
  local encoded = fields[2]
  local is_whole, version, event_key, order, request, rest = pcall(struct.unpack, '>I4c0I4c0I4c0I4c0', encoded)
  local length, start = string.match(is_whole and event_key or '', '^(%d+)%.%d+:()')
  if not length then
    return nil
  end
  local entry = { key = event_key, order = order, request = request, encoded = encoded,
    endpoint = string.sub(event_key, start, start + length - 1), type = '', fingerprint = 'AAAAAAAAAAA',
    received = string.match(id, '^%d+'), sequence = '', size = 0 }
  local is_read, event_type, fingerprint, received, sequence, size = false
  if version == VERSION then
    is_read, event_type, fingerprint, received, sequence, size =
      pcall(struct.unpack, '>I4c0I4c0I4c0I4c0I4c0', encoded, rest)
  end
  if is_read and string.find(received, '^%-?%d+$') then
    entry.type, entry.fingerprint, entry.received, entry.sequence, entry.size =
      event_type, fingerprint, received, sequence, tonumber(size) or 0
  else
    entry.is_unreadable = true
  end
  return entry
end

local function entry_at(arrival)
  local id = id_of(arrival)
  local found = redis.call('XRANGE', EVENTS, id, id)[1]
  return found and read_entry(id, found[2])
end

-- Says whether the event with this record key is among the running ones. If more than MOST run, the answer is yes.
local function is_among_running(key)
  local MOST = 500
  local arrivals = redis.call('ZRANGE', RUNNING, 0, MOST)
  for _, arrival in ipairs(arrivals) do
    local entry = entry_at(arrival)
    if entry and key_of(entry.key) == key then
      return true
    end
  end
  return #arrivals > MOST
end

-- Returns why a worker's token cannot change an event; nil if it is the record's token.
local function refusal_of(record, key, token)
  if not record then
    -- If the event is still in the queue, its record was deleted, and with it the holder's token: another worker may
    -- hold it by now. It runs again when its lease has ended. Otherwise the server has forgotten the event, and the
    -- worker's completion is stored as an inline claim's.
    return is_among_running(key) and 'lost' or 'inline'
  end
  if record.token ~= token then
    return 'lost'
  end
  return record.state == 'r' and 'inline' or nil
end

-- Returns the record of an event that has not ended; nil if there is nothing to run.
local function unfinished_record(arrival, entry)
  local record = read_record(key_of(entry.key))
  if record and record.state == 'a' and not record.mode then
    record.is_unreadable, record.arrival, record.attempts = true, arrival, record.attempts or 0
    return record
  end
  if record then
    return record.arrival == arrival and record.state == 'a' and record or nil
  end
  if redis.call('ZSCORE', COMPLETED, arrival) or redis.call('ZSCORE', DEAD, arrival) then
    return nil
  end
  -- The record of an accepted event was deleted: the event is run nevertheless.
  local due = tonumber(string.sub(arrival, 1, -7))
  return { state = 'a', mode = 'w', token = string.rep('A', 22), fingerprint = entry.fingerprint, arrival = arrival,
    attempts = 0, time = due, was_due_at = due, is_ordered = entry.order ~= '' }
end

-- How an event enters and leaves the sets of events that are due, run, are in an order, or have ended.
-- name: transitions
-- needs: records
local function class_of(record)
  return record.attempts == 0 and UNTRIED or TRIED
end

local function first_due(key)
  return redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
end

-- Updates when the first event of a type is due. The endpoint is to be updated after its types.
local function refresh_type(class, endpoint, event_type)
  local due = first_due(due_key(class, endpoint, event_type))
  if due then
    redis.call('ZADD', types_key(class, endpoint), due, event_type)
  else
    redis.call('ZREM', types_key(class, endpoint), event_type)
  end
end

local function refresh_endpoint(class, endpoint)
  local due = first_due(types_key(class, endpoint))
  if due then
    redis.call('ZADD', endpoints_key(class), due, endpoint)
  else
    redis.call('ZREM', endpoints_key(class), endpoint)
  end
end

-- Removes an event from those of one class that can be leased.
local function remove_due(class, endpoint, event_type, arrival)
  if redis.call('ZREM', due_key(class, endpoint, event_type), arrival) == 1 then
    refresh_type(class, endpoint, event_type)
    refresh_endpoint(class, endpoint)
  end
end

local function remove_all_due(arrival, entry)
  remove_due(UNTRIED, entry.endpoint, entry.type, arrival)
  remove_due(TRIED, entry.endpoint, entry.type, arrival)
end

local function add_waiting(arrival, entry, record)
  add_due(class_of(record), entry.endpoint, entry.type, arrival, record.time)
end

-- Returns the first event of an order that has not ended, and removes what a failed script left in front of it.
local function first_of_order(order)
  local key = ORDER .. order
  while true do
    local arrival = redis.call('ZRANGE', key, 0, 0)[1]
    local entry = arrival and entry_at(arrival)
    local record = entry and unfinished_record(arrival, entry)
    if record or not arrival then
      return arrival, entry, record
    end
    redis.call('ZREM', key, arrival)
  end
end

-- Removes an event from its order. The next one of the order can be leased.
local function leave_order(arrival, entry)
  if entry.order == '' then
    return
  end
  redis.call('ZREM', ORDER .. entry.order, arrival)
  local first, other, record = first_of_order(entry.order)
  if first and is_waiting(record) then
    add_waiting(first, other, record)
  end
end

-- Adds a waiting event to its order, and to those that can be leased if it is the first.
local function add_in_order(arrival, entry, record)
  if entry.order ~= '' then
    redis.call('ZADD', ORDER .. entry.order, 0, arrival)
    if first_of_order(entry.order) ~= arrival then
      return
    end
  end
  add_waiting(arrival, entry, record)
end

-- Removes an event from the running ones, and from those that can be leased: it is there if its lease has lapsed.
local function remove_running(arrival, entry)
  local ends = redis.call('ZSCORE', RUNNING, arrival)
  redis.call('ZREM', RUNNING, arrival)
  if entry and (not ends or ends == 'inf') then
    remove_due(TRIED, entry.endpoint, entry.type, arrival)
  end
end

local function add_failure(record, at, reason)
  local log = redis.call('HGET', FAILURES, record.arrival) or ''
  redis.call('HSET', FAILURES, record.arrival,
    log .. string.format('%d %d ', record.time or at, at) .. reason .. '\n')
end

-- Remembers the sequence of a completed event. Lower ones of its order are superseded from now on.
local function note_applied(entry)
  if entry.order == '' or entry.sequence == '' then
    return
  end
  local last = redis.call('HGET', APPLIED, entry.order)
  if not last or last < entry.sequence then
    redis.call('HSET', APPLIED, entry.order, entry.sequence)
  end
end

-- Deletes a stored request. Large ones expire a moment later, one by one: freeing much memory takes the server time.
local function delete_request(entry)
  if entry.size > LARGE then
    redis.call('PEXPIRE', REQUEST .. entry.request, 1)
  else
    redis.call('DEL', REQUEST .. entry.request)
  end
end

-- Keeps the stored request of an ended event for so many milliseconds.
local function expire_request(entry, time)
  if time > 0 then
    redis.call('PEXPIRE', REQUEST .. entry.request, string.format('%d', time))
  else
    delete_request(entry)
  end
end

-- Makes an event a dead letter. The record is written first: if this fails, a repair goes by the record.
local function bury(key, arrival, entry, record, at, reason, line)
  add_failure(record, at, line)
  write_record(key, 'f', record, at, reason)
  redis.call('ZADD', DEAD, 0, arrival)
  remove_running(arrival, entry)
  if entry then
    remove_all_due(arrival, entry)
    leave_order(arrival, entry)
  end
end

local function delete_empty_stream()
  if redis.call('XLEN', EVENTS) == 0 then
    redis.call('DEL', EVENTS)
  end
end

-- Deletes everything about an arrival except for the record.
local function delete_event(arrival, entry)
  remove_all_due(arrival, entry)
  leave_order(arrival, entry)
  redis.call('ZREM', RUNNING, arrival)
  redis.call('ZREM', DEAD, arrival)
  redis.call('HDEL', FAILURES, arrival)
  -- The same event may have arrived again, and then it needs its request.
  local record = read_record(key_of(entry.key))
  local other = record and record.arrival and record.arrival ~= arrival and entry_at(record.arrival)
  if not other or other.request ~= entry.request then
    delete_request(entry)
  end
  redis.call('XDEL', EVENTS, id_of(arrival))
  -- Last: without a record, and in none of the sets, the event would be run.
  redis.call('ZREM', COMPLETED, arrival)
  delete_empty_stream()
end

-- Deletes the remains of completed events whose retention is over; records and requests have expired by themselves.
-- Returns whether there may be more.
local function purge(at, most)
  local expired = redis.call('ZRANGEBYSCORE', COMPLETED, '-inf', at, 'LIMIT', 0, most)
  if #expired == 0 then
    return 0
  end
  local ids = {}
  for index, arrival in ipairs(expired) do
    ids[index] = id_of(arrival)
  end
  redis.call('XDEL', EVENTS, unpack(ids))
  redis.call('HDEL', FAILURES, unpack(expired))
  redis.call('ZREM', COMPLETED, unpack(expired))
  delete_empty_stream()
  return #expired == most and 1 or 0
end

-- Repairs what a failed script, or another program, has left behind: an event is moved to where its record says.
-- name: repair
-- needs: transitions

-- How long an event is taken to run if the end of its lease is unknown, in milliseconds.
local GRACE = 30000

local function keep_only_in(kept, arrival)
  for _, set in ipairs({ RUNNING, COMPLETED, DEAD }) do
    if set ~= kept then
      redis.call('ZREM', set, arrival)
    end
  end
end

local function repair_ended(arrival, entry, record, key)
  local set = record.state == 'f' and DEAD or COMPLETED
  if set == DEAD then
    redis.call('ZADD', DEAD, 0, arrival)
  else
    local left = math.max(redis.call('PTTL', key), 1)
    redis.call('ZADD', COMPLETED, string.format('%d', now() + left), arrival)
    if redis.call('PTTL', REQUEST .. entry.request) < 0 then
      expire_request(entry, left)
    end
  end
  keep_only_in(set, arrival)
  remove_all_due(arrival, entry)
  leave_order(arrival, entry)
end

local function repair_running(arrival, entry, record)
  keep_only_in(RUNNING, arrival)
  local ends = redis.call('ZSCORE', RUNNING, arrival)
  if not ends then
    redis.call('ZADD', RUNNING, string.format('%d', now() + GRACE), arrival)
  elseif ends == 'inf' then
    add_due(TRIED, entry.endpoint, entry.type, arrival, record.time)
  else
    remove_all_due(arrival, entry)
  end
  if entry.order ~= '' then
    redis.call('ZADD', ORDER .. entry.order, 0, arrival)
  end
end

-- An inline claim took the event, since its record had been deleted. Unless that completes the event, it must be run.
local function wait_for_claim(arrival, entry, key)
  local left, ends = redis.call('PTTL', key), redis.call('ZSCORE', RUNNING, arrival)
  local claimed_until = now() + (left > 0 and left or GRACE)
  -- A worker may hold the event as well, and for longer.
  if not ends or ends == 'inf' or tonumber(ends) < claimed_until then
    redis.call('ZADD', RUNNING, string.format('%d', claimed_until), arrival)
  end
  keep_only_in(RUNNING, arrival)
  remove_all_due(arrival, entry)
end

local function repair(arrival, entry)
  entry = entry or entry_at(arrival)
  if not entry then
    keep_only_in(nil, arrival)
    redis.call('HDEL', FAILURES, arrival)
    return
  end
  local key = key_of(entry.key)
  local record = read_record(key)
  if not record and redis.call('ZSCORE', DEAD, arrival) then
    record = { state = 'f', token = string.rep('A', 22), fingerprint = entry.fingerprint, arrival = arrival,
      attempts = 0 }
    write_record(key, 'f', record, now(), 'its record was deleted')
  end
  local ends = not record and redis.call('ZSCORE', RUNNING, arrival)
  if ends and tonumber(ends) > now() and ends ~= 'inf' then
    -- The record was deleted, and a worker still has the event: it is run again when that lease has lapsed.
    return
  end
  if record and record.state == 'r' then
    return wait_for_claim(arrival, entry, key)
  end
  local unfinished = unfinished_record(arrival, entry)
  if unfinished and is_running(unfinished) then
    repair_running(arrival, entry, unfinished)
  elseif unfinished then
    keep_only_in(nil, arrival)
    unfinished.time = unfinished.time or now()
    redis.call('PERSIST', REQUEST .. entry.request)
    add_in_order(arrival, entry, unfinished)
  elseif record and record.arrival == arrival then
    repair_ended(arrival, entry, record, key)
  else
    delete_event(arrival, entry)
  end
end

-- Repairs some of the events that failed scripts noted. One that cannot be repaired is left for later.
local function repair_unsettled(most)
  for _, arrival in ipairs(redis.call('SRANDMEMBER', UNSETTLED, most)) do
    if pcall(repair, arrival) then
      redis.call('SREM', UNSETTLED, arrival)
    end
  end
end
