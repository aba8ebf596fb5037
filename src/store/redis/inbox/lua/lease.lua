-- Leases what has been due the longest. ARGV: prefix, limit, lease, what is noted down of lapsed attempts and of events of other versions;
-- the endpoints, behind their number; how many of each endpoint, empty for any, and of some of them, behind the number of these; the
-- same of types; and as many tokens as the limit is.
local limit, lease, LAPSED, FOREIGN = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
-- Small parcels come with the reply, as long as it is not too much; the others are asked for by name. PAGE bounds what is done beside.
local SMALL, ALL_SMALL, ENOUGH, PAGE = 16 * 1024, 512 * 1024, 4 * 1024 * 1024, 100
local at = now()

local next_argument = 6
local function argument()
  next_argument = next_argument + 1
  return ARGV[next_argument - 1]
end

local function read_endpoints()
  local endpoints = {}
  for index = 1, tonumber(argument()) do
    endpoints[index] = argument()
  end
  return #endpoints > 0 and endpoints
end

local function read_limits()
  local limits = { each = tonumber(argument()), left = {} }
  for _ = 1, tonumber(argument()) do
    local kind = argument()
    limits.left[kind] = tonumber(argument())
  end
  return limits
end

local endpoints, per_endpoint, per_type = read_endpoints(), read_limits(), read_limits()

local function left(limits, kind)
  return not limits.each and math.huge or limits.left[kind] or limits.each
end

local function has_room(endpoint, event_type)
  return left(per_endpoint, endpoint) > 0
    and (not event_type or event_type == '' or left(per_type, event_type) > 0)
end

local function enter(endpoint, event_type)
  per_endpoint.left[endpoint] = left(per_endpoint, endpoint) - 1
  per_type.left[event_type] = left(per_type, event_type) - 1
end

-- Events whose lease has lapsed are due. They stay among those that run, under the token of whoever had them. Says whether there may be
-- more of them.
local function find_lapsed()
  local found = redis.call('ZRANGEBYSCORE', RUNNING, '-inf', at, 'WITHSCORES', 'LIMIT', 0, PAGE)
  for index = 1, #found, 2 do
    local number, ended = found[index], found[index + 1]
    local entry = entry_at(number)
    local record = entry and open_record(number, entry)
    touch(number)
    if record and is_running(record) then
      push(TRIED, entry.endpoint, entry.type, number, ended)
      redis.call('ZADD', RUNNING, '+inf', number)
    else
      put_right(number, entry)
    end
  end
  return #found == 2 * PAGE
end

-- Whether an event that is listed as due is.
local function may_run(number, entry, record)
  if is_running(record) then
    local ends = redis.call('ZSCORE', RUNNING, number)
    return not ends or ends == 'inf' or tonumber(ends) <= at
  end
  return entry.order == '' or redis.call('ZRANGE', LINE .. entry.order, 0, 0)[1] == number
end

-- Chooses events, as many as there is room for. Those of other versions, and those that are listed where they do not belong, are beside.
local function choose()
  local chosen, foreign, wrong, empty, seen, size, is_drained = {}, {}, {}, {}, {}, 0, false
  begin_due(endpoints, at)
  while #chosen < limit and size < ENOUGH and #wrong + #foreign < PAGE do
    local event = next_due(has_room, empty)
    if not event then
      is_drained = true
      break
    end
    event.entry = not seen[event.number] and entry_at(event.number)
    event.record = event.entry and open_record(event.number, event.entry)
    local into = wrong
    if event.record and (event.entry.is_foreign or event.record.is_foreign) then
      into = foreign
    elseif event.record and may_run(event.number, event.entry, event.record) then
      into = chosen
      seen[event.number] = true
      size = size + event.entry.size
      enter(event.endpoint, event.type)
    end
    into[#into + 1] = event
  end
  return chosen, foreign, wrong, empty, is_drained
end

-- Takes events out of those that are due, each from where it was found.
local function pull_all(events, empty)
  local types, all_endpoints = {}, {}
  for _, event in ipairs(events) do
    local key = due_key(event.class, event.endpoint, event.type)
    types[key] = types[key] or { event = event, numbers = {} }
    table.insert(types[key].numbers, event.number)
  end
  for key, of_type in pairs(types) do
    redis.call('ZREM', key, unpack(of_type.numbers))
    empty[#empty + 1] = { class = of_type.event.class, endpoint = of_type.event.endpoint, event_type = of_type.event.type }
  end
  for _, kind in ipairs(empty) do
    refresh_type(kind.class, kind.endpoint, kind.event_type)
    all_endpoints[kind.class .. kind.endpoint] = kind
  end
  for _, kind in pairs(all_endpoints) do
    refresh_endpoint(kind.class, kind.endpoint)
  end
end

local function hold(chosen)
  local command = { 'ZADD', RUNNING }
  for _, event in ipairs(chosen) do
    touch(event.number)
    command[#command + 1] = string.format('%d', at + lease)
    command[#command + 1] = event.number
  end
  if #chosen > 0 then
    redis.call(unpack(command))
  end
end

-- Writes an event's new record, and says all that its worker has to know.
local function start(event, token)
  local entry, record = event.entry, event.record
  if is_running(record) then
    add_failure(record, at, LAPSED)
  else
    record.due = record.time
  end
  record.attempts, record.token = record.attempts + 1, token
  write_open(claim_key(entry.key), record, 'r', at)
  local last = entry.sequence ~= '' and redis.call('HGET', APPLIED, entry.order)
  local superseded = last and last >= entry.sequence
  return { record.attempts, superseded and 1 or 0, record.is_started and 1 or 0, record.print, entry.facts, false }
end

local function add_parcels(rows, chosen)
  local size = 0
  for index, event in ipairs(chosen) do
    local entry = event.entry
    if entry.size <= SMALL and size + entry.size <= ALL_SMALL then
      size = size + entry.size
      rows[index][6] = redis.call('GET', PARCEL .. entry.parcel)
    end
  end
end

local function bury_foreign(event)
  local record, claim = event.record, claim_key(event.entry.key)
  touch(event.number)
  bury(claim, event.number, event.entry, record, at, FOREIGN, FOREIGN)
  return event.entry.key
end

-- How far everything was looked at, for whoever is going to wait for more.
local function last_arrival()
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

return guarded(function()
  put_right_noted(PAGE / 5)
  local has_expired = purge(at, PAGE)
  local has_lapsed = find_lapsed()
  local chosen, foreign, wrong, empty, is_drained = choose()
  -- Running before they are taken out: if anything fails from here on, the lease ends, and they are found.
  hold(chosen)
  local rows, buried = {}, {}
  for index, event in ipairs(chosen) do
    rows[index] = start(event, argument())
  end
  add_parcels(rows, chosen)
  pull_all(chosen, empty)
  for index, event in ipairs(foreign) do
    buried[index] = bury_foreign(event)
  end
  pull_all(foreign, {})
  -- The next lease puts these right.
  for _, event in ipairs(wrong) do
    redis.call('SADD', UNSETTLED, event.number)
  end
  pull_all(wrong, {})
  local is_all = is_drained and not has_lapsed and #wrong == 0
  return { rows, buried, is_all and last_arrival(), is_all and 0 or 1, has_expired }
end)
