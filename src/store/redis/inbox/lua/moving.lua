-- How an event comes among those that are due, run, wait for others of their order, or have ended, and how it leaves them.

local function class_of(record)
  return record.attempts == 0 and UNTRIED or TRIED
end

local function first_of(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[1], first[2]
end

-- Notes down when the first of a type is due, if there is any; then the same of its endpoint.
local function refresh_type(class, endpoint, event_type)
  local _, due = first_of(due_key(class, endpoint, event_type))
  if due then
    redis.call('ZADD', types_key(class, endpoint), due, event_type)
  else
    redis.call('ZREM', types_key(class, endpoint), event_type)
  end
end

local function refresh_endpoint(class, endpoint)
  local _, due = first_of(types_key(class, endpoint))
  if due then
    redis.call('ZADD', endpoints_key(class), due, endpoint)
  else
    redis.call('ZREM', endpoints_key(class), endpoint)
  end
end

-- Has an event no longer among those that are due.
local function pull(class, endpoint, event_type, number)
  if redis.call('ZREM', due_key(class, endpoint, event_type), number) == 1 then
    refresh_type(class, endpoint, event_type)
    refresh_endpoint(class, endpoint)
  end
end

local function take_out(number, entry)
  pull(UNTRIED, entry.endpoint, entry.type, number)
  pull(TRIED, entry.endpoint, entry.type, number)
end

local function push_waiting(number, entry, record)
  push(class_of(record), entry.endpoint, entry.type, number, record.time)
end

-- The first of an order that has not ended. What is before it was left behind by a script that failed.
local function first_in_line(order)
  local line = LINE .. order
  while true do
    local number = redis.call('ZRANGE', line, 0, 0)[1]
    local entry = number and entry_at(number)
    local record = entry and open_record(number, entry)
    if record or not number then
      return number, entry, record
    end
    redis.call('ZREM', line, number)
  end
end

-- An event leaves its line, and the one behind it is due.
local function leave_line(number, entry)
  if entry.order == '' then
    return
  end
  redis.call('ZREM', LINE .. entry.order, number)
  local first, other, record = first_in_line(entry.order)
  if first and is_waiting(record) then
    push_waiting(first, other, record)
  end
end

-- Has an event that waits among those that are due, unless others of its order go first.
local function offer(number, entry, record)
  if entry.order ~= '' then
    redis.call('ZADD', LINE .. entry.order, 0, number)
    if first_in_line(entry.order) ~= number then
      return
    end
  end
  push_waiting(number, entry, record)
end

-- A running event runs no more. If its lease has lapsed, it is among those that are due.
local function let_go(number, entry)
  local ends = redis.call('ZSCORE', RUNNING, number)
  redis.call('ZREM', RUNNING, number)
  if entry and (not ends or ends == 'inf') then
    pull(TRIED, entry.endpoint, entry.type, number)
  end
end

local function add_failure(record, at, reason)
  local log = redis.call('HGET', FAILURES, record.number) or ''
  redis.call('HSET', FAILURES, record.number,
    log .. string.format('%d %d ', record.time or at, at) .. reason .. '\n')
end

-- What was completed is old news from now on.
local function note_applied(entry)
  if entry.order == '' or entry.sequence == '' then
    return
  end
  local last = redis.call('HGET', APPLIED, entry.order)
  if not last or last < entry.sequence then
    redis.call('HSET', APPLIED, entry.order, entry.sequence)
  end
end

-- Deletes head and body. Large ones end in a moment, one by one: to give much memory back takes the server time.
local function drop_parcel(entry)
  if entry.size > LARGE then
    redis.call('PEXPIRE', PARCEL .. entry.parcel, 1)
  else
    redis.call('DEL', PARCEL .. entry.parcel)
  end
end

-- Head and body of an ended event stay for so many milliseconds.
local function keep_parcel(entry, time)
  if time > 0 then
    redis.call('PEXPIRE', PARCEL .. entry.parcel, string.format('%d', time))
  else
    drop_parcel(entry)
  end
end

-- Gives an event up. Its record comes first: by that the rest is put right, if this fails.
local function bury(claim, number, entry, record, at, reason, line)
  add_failure(record, at, line)
  write(claim, 'f', record, at, reason)
  redis.call('ZADD', DEAD, 0, number)
  let_go(number, entry)
  if entry then
    take_out(number, entry)
    leave_line(number, entry)
  end
end

local function tidy()
  if redis.call('XLEN', EVENTS) == 0 then
    redis.call('DEL', EVENTS)
  end
end

-- Deletes all that there is of an arrival, but for the record.
local function erase(number, entry)
  take_out(number, entry)
  leave_line(number, entry)
  redis.call('ZREM', RUNNING, number)
  redis.call('ZREM', DEAD, number)
  redis.call('HDEL', FAILURES, number)
  -- The same event may have arrived anew, and then its parcel is needed.
  local record = read(claim_key(entry.key))
  local other = record and record.number and record.number ~= number and entry_at(record.number)
  if not other or other.parcel ~= entry.parcel then
    drop_parcel(entry)
  end
  redis.call('XDEL', EVENTS, id_of(number))
  -- Not before: without a record, and in no set, it would be run.
  redis.call('ZREM', COMPLETED, number)
  tidy()
end

-- Deletes what is left of completed events whose retention is over: records and parcels end by themselves. Says whether there is more.
local function purge(at, most)
  local expired = redis.call('ZRANGEBYSCORE', COMPLETED, '-inf', at, 'LIMIT', 0, most)
  if #expired == 0 then
    return 0
  end
  local ids = {}
  for index, number in ipairs(expired) do
    ids[index] = id_of(number)
  end
  redis.call('XDEL', EVENTS, unpack(ids))
  redis.call('HDEL', FAILURES, unpack(expired))
  redis.call('ZREM', COMPLETED, unpack(expired))
  tidy()
  return #expired == most and 1 or 0
end
