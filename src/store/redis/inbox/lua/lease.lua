-- Leases what has been due the longest. ARGV: prefix, limit, lease, what is noted down of lapsed attempts, how many endpoints,
-- left-out endpoints and left-out types there are; these; and as many tokens as the limit is.
local limit, lease, lapsed = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local AT_ONCE, ENOUGH = 32, 4 * 1024 * 1024
local at = now()

local next_argument = 8
local function names(count)
  local set = {}
  for index = next_argument, next_argument + count - 1 do
    set[ARGV[index]] = true
  end
  next_argument = next_argument + count
  return count > 0 and set
end
local endpoints, no_endpoints, no_types = names(tonumber(ARGV[5])), names(tonumber(ARGV[6])), names(tonumber(ARGV[7]))

local function suits(kind)
  if not (endpoints or no_endpoints or no_types) then
    return true
  end
  local length, start = string.match(kind, '^(%d+):()')
  local endpoint, event_type = string.sub(kind, start, start + length - 1), string.sub(kind, start + length)
  return (not endpoints or endpoints[endpoint])
    and not (no_endpoints and no_endpoints[endpoint])
    and not (no_types and no_types[event_type])
end

-- Entries whose lease has lapsed are set aside. They stay pending, under the token of whoever had them.
local function find_lapsed()
  local cursor = '0-0'
  repeat
    local page = redis.pcall('XAUTOCLAIM', EVENTS, GROUP, WORKER, NEVER, cursor, 'COUNT', 100, 'JUSTID')
    if page.err then
      break
    end
    cursor = page[1]
    for _, id in ipairs(page[2]) do
      local number = number_of(id)
      local entry = entry_of(number)
      local record = entry and read(claim_key(entry[KEY]))
      if record and record.number == number and is_running(record) then
        write_open(claim_key(entry[KEY]), record, record.time, 'l')
        set_aside(number, entry, at)
      else
        redis.call('XACK', EVENTS, GROUP, id)
      end
    end
  until cursor == '0-0'
  -- Leases that were granted before and end later have to be looked for again.
  if pending() > 0 then
    redis.call('SET', LAPSES, at + 1000)
  else
    redis.call('DEL', LAPSES)
  end
end

local function read_new(count)
  local read_group = { 'XREADGROUP', 'GROUP', GROUP, WORKER, 'COUNT', count, 'STREAMS', EVENTS, '>' }
  local came = redis.pcall(unpack(read_group))
  if came and came.err then
    if not string.find(came.err, 'NOGROUP', 1, true) then
      error(came.err)
    end
    -- The first lease of all, or the server has forgotten. Whatever has ended is known by its record.
    redis.call('XGROUP', 'CREATE', EVENTS, GROUP, '0', 'MKSTREAM')
    came = redis.call(unpack(read_group))
  end
  return came and came[1][2] or {}
end

-- The record of an entry that was only just read; nil if there is nothing to run.
local function open_record(number, entry)
  local claim = claim_key(entry[KEY])
  local record = read(claim)
  if record then
    return record.number == number and is_waiting(record) and record or nil
  end
  if redis.call('ZSCORE', COMPLETED, number) or redis.call('ZSCORE', DEAD, number) then
    return nil
  end
  -- Somebody deleted the record of an event that was accepted: it is run nevertheless.
  return { state = 'a', token = '', print = entry[PRINT], number = number, attempts = 0,
    time = tonumber(string.sub(number, 1, -7)), rest = entry[ORDER] == '' and 'w' or 'wo' }
end

purge(at, 2 * limit + 16)
local known = redis.call('GET', LAPSES)
if known and tonumber(known) <= at then
  find_lapsed()
end

local due = {}
for _, kind in ipairs(redis.call('SMEMBERS', KINDS)) do
  if suits(kind) then
    local found = redis.call('ZRANGEBYSCORE', PREFIX .. 'due:' .. kind, '-inf', at, 'WITHSCORES', 'LIMIT', 0, limit)
    for index = 1, #found, 2 do
      due[#due + 1] = { number = found[index], time = tonumber(found[index + 1]), kind = kind }
    end
  end
end

-- What is new is read in the order of its arrival, whoever it is for: what does not suit, or has to wait for others, is set aside
-- once, and found by its kind or its line from then on.
local fresh, size, budget, drained, done = 0, 0, 4 * limit + 256, false, {}
while fresh < limit and size < ENOUGH and budget > 0 and not drained do
  local count = math.min(limit - fresh, AT_ONCE)
  local came = read_new(count)
  drained = #came < count
  budget = budget - #came
  for _, item in ipairs(came) do
    local number, entry = number_of(item[1]), item[2]
    local record = open_record(number, entry)
    local is_first = record and (entry[ORDER] == '' or redis.call('RPUSH', PREFIX .. 'line' .. entry[ORDER], number) == 1)
    local kind = is_first and kind_of(entry)
    if is_first and suits(kind) then
      fresh = fresh + 1
      size = size + #entry[16]
      due[#due + 1] = { number = number, time = record.time, entry = entry, record = record }
    else
      done[#done + 1] = item[1]
      if is_first then
        set_aside(number, entry, record.time)
      end
    end
  end
end

table.sort(due, function(one, other)
  if one.time ~= other.time then
    return one.time < other.time
  end
  return one.number < other.number
end)

local leased, ids = {}, {}
size = 0
for _, event in ipairs(due) do
  local number, entry, record = event.number, event.entry, event.record
  if #leased < limit and (size < ENOUGH or entry) then
    if not entry then
      entry = entry_of(number)
      record = entry and read(claim_key(entry[KEY]))
      take_up(number, event.kind)
    end
    if record and record.number == number and record.state == 'a' then
      if is_running(record) then
        add_failure(record, at, lapsed)
      end
      record.attempts, record.token = record.attempts + 1, ARGV[next_argument + #leased]
      write_open(claim_key(entry[KEY]), record, at, 'r')
      local sequence, last = entry[SEQUENCE], false
      if sequence ~= '' then
        last = redis.call('HGET', APPLIED, entry[ORDER])
      end
      ids[#ids + 1] = id_of(number)
      size = size + #entry[16]
      leased[#leased + 1] = { record.attempts, (last and last >= sequence) and 1 or 0, record.print, entry }
    end
  elseif entry then
    -- Others have been due for longer.
    set_aside(number, entry, record.time)
    done[#done + 1] = id_of(number)
  end
end
if #done > 0 then
  redis.call('XACK', EVENTS, GROUP, unpack(done))
end
if #ids > 0 then
  hold(ids, lease, at)
end

-- How far everybody has read, for whoever is going to wait for more.
local position = false
if #leased < limit and drained then
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', EVENTS)) do
    for index = 1, #group, 2 do
      if group[index] == 'last-delivered-id' and group[2] == GROUP then
        position = group[index + 1]
      end
    end
  end
end
return { leased, position, budget <= 0 and 1 or 0 }
