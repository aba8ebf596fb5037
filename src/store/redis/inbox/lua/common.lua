-- What the scripts share that know an event by its record.
-- An entry is the reader's from when it is read until the same script has leased it or set it aside. A script that fails is not
-- rolled back: what is the reader's when another one begins was left behind.
local GROUP, WORKER, READER = 'workers', 'worker', 'reader'
local KINDS, APPLIED, FAILURES = PREFIX .. 'kinds', PREFIX .. 'applied', PREFIX .. 'failures'
local COMPLETED, DEAD, LAPSES = PREFIX .. 'completed', PREFIX .. 'dead', PREFIX .. 'lapses'
-- A lease ends when its entry has been pending for this long, in milliseconds: an entry that is leased is said to have been pending
-- for so much less, which gives each its own deadline.
local NEVER = 1000000000000

local function id_of(number)
  return string.sub(number, 1, -7) .. '-' .. tonumber(string.sub(number, -6))
end

local function claim_key(key)
  return ARGV[1] .. (string.find(key, '{', 1, true) and '{}' or '') .. key
end

-- The record under a claim's key; without a number, if it is none of the inbox's.
local function read(claim)
  local value = value_of(claim)
  if not value then
    return nil
  end
  local number, attempts, time, rest = string.match(value, '^@(%d+) (%d+) (%d+) (.*)$', 38)
  return { value = value, state = string.sub(value, 1, 1), token = string.sub(value, 3, 24), print = string.sub(value, 26, 36),
    number = number, attempts = tonumber(attempts), time = tonumber(time), rest = rest }
end

local function is_waiting(record)
  return record.state == 'a' and record.number and string.sub(record.rest, 1, 1) == 'w'
end

local function is_running(record)
  return record.state == 'a' and record.number and string.sub(record.rest, 1, 1) ~= 'w'
end

local function is_lapsed(record)
  return is_running(record) and string.sub(record.rest, 1, 1) == 'l'
end

local function is_ordered(record)
  return string.sub(record.rest, 2, 2) == 'o'
end

local function write(claim, state, record, time, rest, ...)
  redis.call('SET', claim, state .. ':' .. record.token .. ':' .. record.print .. ':@' .. record.number .. ' ' ..
    record.attempts .. ' ' .. string.format('%d', time) .. ' ' .. rest, ...)
end

local function write_open(claim, record, time, how)
  write(claim, 'a', record, time, how .. (is_ordered(record) and 'o' or ''))
end

-- What is in an entry of the stream; nil, if somebody else added it. All but the body is in one field, in front of the head: every value
-- that a script gets to see costs it a copy and a hash.
local function entry_of(fields)
  if #fields ~= 4 or fields[1] ~= 'e' or fields[3] ~= 'b' then
    return nil
  end
  local is_whole, key, event_type, print, received, order, sequence =
    pcall(struct.unpack, '>I4c0I4c0I4c0I4c0I4c0I4c0', fields[2])
  if not is_whole or not string.find(key, '^%d+%.%d+:') then
    return nil
  end
  return { key = key, type = event_type, print = print, received = received, order = order, sequence = sequence,
    parts = fields[2], body = fields[4] }
end

local function entry_at(number)
  local id = id_of(number)
  local found = redis.call('XRANGE', EVENTS, id, id)[1]
  return found and entry_of(found[2])
end

-- The record of an event that has not ended; nil if there is nothing to run.
local function open_record(number, entry)
  local record = read(claim_key(entry.key))
  if record then
    return record.number == number and record.state == 'a' and record or nil
  end
  if redis.call('ZSCORE', COMPLETED, number) or redis.call('ZSCORE', DEAD, number) then
    return nil
  end
  -- Somebody deleted the record of an event that was accepted: it is run nevertheless.
  return { state = 'a', token = '', print = entry.print, number = number, attempts = 0,
    time = tonumber(string.sub(number, 1, -7)), rest = entry.order == '' and 'w' or 'wo' }
end

-- Since when an event is due. One that was never put back was due when it came, even if the server's clock was set back since.
local function due_since(record, at)
  return record.attempts == 0 and math.min(record.time, at) or record.time
end

local function kind_of(entry)
  local length, start = string.match(entry.key, '^(%d+)%.%d+:()')
  return length .. ':' .. string.sub(entry.key, start, start + length - 1) .. entry.type
end

-- Among those that are due beside the stream: what was read and not leased, put back, or has lapsed.
local function set_aside(number, entry, due)
  local kind = kind_of(entry)
  redis.call('ZADD', PREFIX .. 'due:' .. kind, due, number)
  redis.call('SADD', KINDS, kind)
end

local function take_up(number, kind)
  local due = PREFIX .. 'due:' .. kind
  if redis.call('ZREM', due, number) == 1 and redis.call('EXISTS', due) == 0 then
    redis.call('SREM', KINDS, kind)
  end
end

local function note_lapse(time)
  local known = redis.call('GET', LAPSES)
  if not known or tonumber(known) > time then
    redis.call('SET', LAPSES, time)
  end
end

-- Has these entries pending until the lease ends.
local function hold(ids, lease, at)
  note_lapse(at + lease)
  local command = { 'XCLAIM', EVENTS, GROUP, WORKER, 0 }
  for _, id in ipairs(ids) do
    command[#command + 1] = id
  end
  for _, option in ipairs({ 'IDLE', NEVER - lease, 'JUSTID', 'FORCE' }) do
    command[#command + 1] = option
  end
  redis.call(unpack(command))
end

local function add_failure(record, at, reason)
  local log = redis.call('HGET', FAILURES, record.number) or ''
  redis.call('HSET', FAILURES, record.number,
    log .. string.format('%d %d ', record.time, at) .. reason .. '\n')
end

-- Has an event in the line of its order, and says whether it is the first. Lines are in the order of arrival: what is above the last
-- one cannot be in it yet.
local function join_line(number, entry)
  local line = PREFIX .. 'line' .. entry.order
  local last = redis.call('LINDEX', line, -1)
  if not last or last < number or not redis.call('LPOS', line, number) then
    return redis.call('RPUSH', line, number) == 1
  end
  return redis.call('LINDEX', line, 0) == number
end

-- An event leaves its line, and the one behind it is due. That comes first: if it fails, the line is as it was.
local function leave_line(number, entry, applied)
  local order, sequence = entry.order, entry.sequence
  if order == '' then
    return
  end
  if applied and sequence ~= '' then
    local last = redis.call('HGET', APPLIED, order)
    if not last or last < sequence then
      redis.call('HSET', APPLIED, order, sequence)
    end
  end
  local line = PREFIX .. 'line' .. order
  if redis.call('LINDEX', line, 0) ~= number then
    redis.call('LREM', line, 1, number)
    return
  end
  local index = 1
  local behind = redis.call('LINDEX', line, index)
  while behind do
    local other = behind ~= number and entry_at(behind)
    local record = other and open_record(behind, other)
    if record and is_waiting(record) then
      set_aside(behind, other, due_since(record, now()))
      break
    end
    index = index + 1
    behind = redis.call('LINDEX', line, index)
  end
  redis.call('LTRIM', line, index, -1)
end

-- The caller's running event is not run any more: nobody's, and out of whatever it was in. This comes last: what is pending is found
-- again if the script fails.
local function let_go(record, entry)
  redis.call('XACK', EVENTS, GROUP, id_of(record.number))
  if string.sub(record.rest, 1, 1) == 'l' then
    entry = entry or entry_at(record.number)
    if entry then
      take_up(record.number, kind_of(entry))
    end
  end
end

local function end_order(record, applied)
  if is_ordered(record) then
    local entry = entry_at(record.number)
    if entry then
      leave_line(record.number, entry, applied)
    end
  end
end

local function tidy()
  if redis.call('XLEN', EVENTS) == 0 then
    redis.call('DEL', EVENTS, LAPSES)
  end
end

-- Deletes what is left of completed events whose retention is over.
local function purge(at, most)
  local expired = redis.call('ZRANGEBYSCORE', COMPLETED, '-inf', at, 'LIMIT', 0, most)
  if #expired == 0 then
    return
  end
  local ids = {}
  for index, number in ipairs(expired) do
    ids[index] = id_of(number)
  end
  redis.call('XDEL', EVENTS, unpack(ids))
  redis.call('ZREM', COMPLETED, unpack(expired))
  redis.call('HDEL', FAILURES, unpack(expired))
  tidy()
end

local function pending()
  local summary = redis.pcall('XPENDING', EVENTS, GROUP)
  return summary.err and 0 or summary[1]
end
