-- What the scripts share that know an event by its record.
local RUNNING, COMPLETED, DEAD = PREFIX .. 'running', PREFIX .. 'completed', PREFIX .. 'dead'
local APPLIED, FAILURES = PREFIX .. 'applied', PREFIX .. 'failures'
-- What is known of an event is written in one way by each version, and begins in the same way in all of them.
local VERSION = '1'
-- A parcel of more bytes is a large one.
local LARGE = 64 * 1024

-- The arrivals that this script changes. A script that fails is not rolled back: these are noted down then, and the next lease puts them
-- right by their records.
local touched = {}

local function touch(number)
  touched[#touched + 1] = number
end

local function guarded(change)
  local is_done, result = pcall(change)
  if not is_done then
    if #touched > 0 then
      redis.pcall('SADD', UNSETTLED, unpack(touched))
    end
    error(result)
  end
  return result
end

local function number_of(id)
  return numbered(string.match(id, '^(%d+)%-(%d+)$'))
end

local function id_of(number)
  return string.sub(number, 1, -7) .. '-' .. tonumber(string.sub(number, -6))
end

local function claim_key(key)
  return ARGV[1] .. (string.find(key, '{', 1, true) and '{}' or '') .. key
end

-- The record under a claim's key; without a number, if it is none of the inbox's, or one of another version.
local function read(claim)
  local value = value_of(claim)
  if not value then
    return nil
  end
  local record = { value = value, state = string.sub(value, 1, 1), token = string.sub(value, 3, 24),
    print = string.sub(value, 26, 36) }
  local number, attempts, time, rest = string.match(value, '^@(%d+) (%d+) (%d+) (.*)$', 38)
  if not number then
    return record
  end
  record.number, record.attempts, record.time, record.rest = number, tonumber(attempts), tonumber(time), rest
  if record.state == 'a' then
    local mode, flags, due = string.match(rest, '^([wr])(%a*) ?(%d*)$')
    record.mode, record.due = mode, tonumber(due) or record.time
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

local function write(claim, state, record, time, rest, ...)
  redis.call('SET', claim, state .. ':' .. record.token .. ':' .. record.print .. ':@' .. record.number .. ' ' ..
    record.attempts .. ' ' .. string.format('%d', time) .. ' ' .. rest, ...)
end

-- Waiting since or until a time, or running since then; the latter knows since when it was due before.
local function write_open(claim, record, mode, time)
  local rest = mode .. (record.is_ordered and 'o' or '') .. (record.is_started and 's' or '')
  if mode == 'r' then
    rest = rest .. string.format(' %d', record.due)
  end
  write(claim, 'a', record, time, rest)
end

-- What an entry of the stream says; nil, if somebody else added it. Of another version's, what all versions begin with.
local function entry_of(id, fields)
  if #fields ~= 2 or fields[1] ~= 'e' then
    return nil
  end
  local facts = fields[2]
  local is_whole, version, key, order, parcel, rest = pcall(struct.unpack, '>I4c0I4c0I4c0I4c0', facts)
  local length, start = string.match(is_whole and key or '', '^(%d+)%.%d+:()')
  if not length then
    return nil
  end
  local entry = { key = key, order = order, parcel = parcel, facts = facts,
    endpoint = string.sub(key, start, start + length - 1), type = '', print = 'AAAAAAAAAAA', received = string.match(id, '^%d+'),
    sequence = '', size = 0 }
  local is_read, event_type, print, received, sequence, size = false
  if version == VERSION then
    is_read, event_type, print, received, sequence, size = pcall(struct.unpack, '>I4c0I4c0I4c0I4c0I4c0', facts, rest)
  end
  if is_read and string.find(received, '^%-?%d+$') then
    entry.type, entry.print, entry.received, entry.sequence, entry.size =
      event_type, print, received, sequence, tonumber(size) or 0
  else
    entry.is_foreign = true
  end
  return entry
end

local function entry_at(number)
  local id = id_of(number)
  local found = redis.call('XRANGE', EVENTS, id, id)[1]
  return found and entry_of(id, found[2])
end

-- Whether a worker has the event whose claim this is, by what is known of the events that run. Where more than MOST run, it is taken to be
-- one of them.
local function is_among_running(claim)
  local MOST = 500
  local numbers = redis.call('ZRANGE', RUNNING, 0, MOST)
  for _, number in ipairs(numbers) do
    local entry = entry_at(number)
    if entry and claim_key(entry.key) == claim then
      return true
    end
  end
  return #numbers > MOST
end

-- Why a worker's token cannot change an event; nil, if it is that of the event's record.
local function refusal_of(record, claim, token)
  if not record then
    -- If the event is still kept, somebody deleted its record, and with it who holds the event: another worker may by now. It runs again
    -- when its lease has ended. If it is not, the server has forgotten it, and what its worker does is remembered as a receiver's claim.
    return is_among_running(claim) and 'lost' or 'plain'
  end
  if record.token ~= token then
    return 'lost'
  end
  return record.state == 'r' and 'plain' or nil
end

-- The record of an event that has not ended; nil if there is nothing to run.
local function open_record(number, entry)
  local record = read(claim_key(entry.key))
  if record and record.state == 'a' and not record.mode then
    record.is_foreign, record.number, record.attempts = true, number, record.attempts or 0
    return record
  end
  if record then
    return record.number == number and record.state == 'a' and record or nil
  end
  if redis.call('ZSCORE', COMPLETED, number) or redis.call('ZSCORE', DEAD, number) then
    return nil
  end
  -- Somebody deleted the record of an event that was accepted: it is run nevertheless.
  local due = tonumber(string.sub(number, 1, -7))
  return { state = 'a', mode = 'w', token = string.rep('A', 22), print = entry.print, number = number, attempts = 0, time = due,
    due = due, is_ordered = entry.order ~= '' }
end
