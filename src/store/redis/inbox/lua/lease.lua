-- Leases what has been due the longest. ARGV: prefix, limit, lease, what is noted down of lapsed attempts, how many endpoints,
-- left-out endpoints and left-out types there are; these; and as many tokens as the limit is.
local limit, lease, lapsed = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local AT_ONCE, PAGE, ENOUGH = 32, 100, 4 * 1024 * 1024
local LARGE = ENOUGH / AT_ONCE
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

-- A pending entry that a script left behind, or whose record somebody deleted, goes where it belongs.
local function put_right(id, number, entry)
  local record = entry and open_record(number, entry)
  if record and is_running(record) then
    hold({ id }, lease, at)
    return
  end
  if record and (entry.order == '' or join_line(number, entry)) then
    set_aside(number, entry, due_since(record, at))
  end
  redis.call('XACK', EVENTS, GROUP, id)
end

local function find_pending(...)
  local found = redis.pcall('XPENDING', EVENTS, GROUP, ...)
  if found.err and not string.find(found.err, 'NOGROUP', 1, true) then
    error(found)
  end
  return found.err and {} or found
end

-- Says whether there may be more of them.
local function find_left_behind()
  local found = find_pending('-', '+', PAGE, READER)
  for _, item in ipairs(found) do
    local number = number_of(item[1])
    put_right(item[1], number, entry_at(number))
  end
  return #found == PAGE
end

-- Entries whose lease has lapsed are set aside. They stay pending, under the token of whoever had them. Says whether there may be more.
local function find_lapsed()
  local found = find_pending('IDLE', NEVER, '-', '+', PAGE)
  for _, item in ipairs(found) do
    local number = number_of(item[1])
    local entry = entry_at(number)
    local record = entry and open_record(number, entry)
    if record and is_running(record) then
      set_aside(number, entry, at)
      write_open(claim_key(entry.key), record, record.time, 'l')
      redis.call('XCLAIM', EVENTS, GROUP, WORKER, 0, item[1], 'IDLE', 0, 'JUSTID')
    else
      put_right(item[1], number, entry)
    end
  end
  -- Leases that were granted before and end later have to be looked for again.
  if #found == PAGE then
    redis.call('SET', LAPSES, at)
  elseif pending() > 0 then
    redis.call('SET', LAPSES, at + 1000)
  else
    redis.call('DEL', LAPSES)
  end
  return #found == PAGE
end

local function read_new(count)
  local read_group = { 'XREADGROUP', 'GROUP', GROUP, READER, 'COUNT', count, 'STREAMS', EVENTS, '>' }
  local came = redis.pcall(unpack(read_group))
  if came and came.err then
    if not string.find(came.err, 'NOGROUP', 1, true) then
      error(came)
    end
    -- The first lease of all, or the server has forgotten. Whatever has ended is known by its record.
    redis.call('XGROUP', 'CREATE', EVENTS, GROUP, '0', 'MKSTREAM')
    came = redis.call(unpack(read_group))
  end
  return came and came[1][2] or {}
end

purge(at, 2 * limit + 16)
local known = redis.call('GET', LAPSES)
-- Before anything new: these came first.
local is_behind = find_left_behind()
if known and tonumber(known) <= at or not known and pending() > 0 then
  is_behind = find_lapsed() or is_behind
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
-- Where one is large, others are: these are read one at a time, and so is the first, so that it does not become too much.
local at_once = 1
local fresh, size, budget, drained, done = 0, 0, is_behind and 0 or 4 * limit + 256, false, {}
while fresh < limit and size < ENOUGH and budget > 0 and not drained do
  local count = math.min(limit - fresh, at_once)
  local came = read_new(count)
  drained = #came < count
  budget = budget - #came
  for _, item in ipairs(came) do
    local number, entry = number_of(item[1]), entry_of(item[2])
    local record = entry and open_record(number, entry)
    at_once = entry and #entry.body > LARGE and 1 or AT_ONCE
    if record and is_running(record) then
      -- The group was lost, and is read from the beginning: somebody still runs this.
      hold({ item[1] }, lease, at)
    else
      local is_first = record and (entry.order == '' or join_line(number, entry))
      local time = is_first and due_since(record, at)
      if is_first and time <= at and suits(kind_of(entry)) then
        fresh = fresh + 1
        size = size + #entry.body
        due[#due + 1] = { number = number, time = time, entry = entry, record = record }
      else
        if is_first then
          set_aside(number, entry, time)
        end
        done[#done + 1] = item[1]
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

local chosen, ids, is_chosen = {}, {}, {}
size = 0
for _, event in ipairs(due) do
  local number, entry, record = event.number, event.entry, event.record
  if is_chosen[number] then
    -- Read once more, since the group was lost.
  elseif #chosen < limit and (size < ENOUGH or entry) then
    if not entry then
      entry = entry_at(number)
      record = entry and open_record(number, entry)
    end
    if record and (is_waiting(record) or is_lapsed(record)) then
      is_chosen[number] = true
      chosen[#chosen + 1] = { entry = entry, record = record, kind = event.kind }
      ids[#ids + 1] = id_of(number)
      size = size + #entry.body
    else
      take_up(number, event.kind)
    end
  elseif entry then
    -- Others have been due for longer.
    set_aside(number, entry, event.time)
    done[#done + 1] = id_of(number)
  end
end
if #done > 0 then
  redis.call('XACK', EVENTS, GROUP, unpack(done))
end
-- Pending before they are taken up: if anything fails from here on, the lease ends, and they are found.
if #ids > 0 then
  hold(ids, lease, at)
end

local leased = {}
for index, event in ipairs(chosen) do
  local entry, record = event.entry, event.record
  if is_running(record) then
    add_failure(record, at, lapsed)
  end
  record.attempts, record.token = record.attempts + 1, ARGV[next_argument + index - 1]
  write_open(claim_key(entry.key), record, at, 'r')
  if event.kind then
    take_up(record.number, event.kind)
  end
  local sequence, last = entry.sequence, false
  if sequence ~= '' then
    last = redis.call('HGET', APPLIED, entry.order)
  end
  leased[index] = { record.attempts, (last and last >= sequence) and 1 or 0, record.print, entry.parts, entry.body }
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
