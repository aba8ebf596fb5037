-- The scripts of enqueue, lease and settle, in the order of a delivery.

-- Enqueues events. Returns for each the record that prevents it, nil, or '?' if its request has to be written first.
-- KEYS: the record of the first. ARGV: prefix; whether replicas are to confirm; then of each event the key, the record
-- up to the arrival, the encoded entry, endpoint, type, order, the request's name, and the request unless it is large.
-- name: enqueue
-- needs: base
local IS_REPLICATED, EACH = ARGV[2] == '1', 8
-- Due from now on, and not from the time in its id: that may be in the future if the server's clock was set back.
local at = now()
local unused_request, last_arrival
-- The kinds whose first event is known to be due by now.
local known = {}

local function existing(found, key, record)
  -- Written again, unchanged: from Redis 7.2 on, WAIT is about the writes of its own connection.
  if IS_REPLICATED and string.sub(found, 1, 1) == 'a' then
    redis.call('SET', key, found)
  end
  -- Enqueued before under the same token, and still waiting: the reply was lost.
  if string.sub(found, 1, 25) == string.sub(record, 1, 25) and string.find(found, ' w', 38, true) then
    return false
  end
  return found
end

local function enqueue(key, record, encoded, endpoint, event_type, order, name, request)
  local found = get_record(key)
  if found == nil then
    -- Not a record, which concerns only this event.
    return ''
  end
  if found then
    return existing(found, key, record)
  end
  unused_request, last_arrival = REQUEST .. name, nil
  if request ~= '' then
    redis.call('SET', REQUEST .. name, request)
  elseif redis.call('EXISTS', REQUEST .. name) == 1 then
    redis.call('PERSIST', REQUEST .. name)
  else
    return '?'
  end
  local arrival = append(encoded)
  unused_request, last_arrival = nil, arrival
  redis.call('SET', key, record .. '@' .. arrival .. string.format(' 0 %d w', at) .. (order == '' and '' or 'o'))
  local order_key = ORDER .. order
  if order == ''
    or redis.call('ZADD', order_key, 0, arrival) and redis.call('ZRANGE', order_key, 0, 0)[1] == arrival then
    local kind = due_key(UNTRIED, endpoint, event_type)
    if known[kind] then
      redis.call('ZADD', kind, at, arrival)
    else
      add_due(UNTRIED, endpoint, event_type, arrival, at)
      known[kind] = true
    end
  end
  return false
end

local function enqueue_all()
  local replies = {}
  for index = 3, #ARGV, EACH do
    replies[#replies + 1] = enqueue(unpack(ARGV, index, index + EACH - 1))
  end
  return replies
end

local is_done, replies = pcall(enqueue_all)
if not is_done then
  -- The events before this one stay in the queue. The next lease repairs this one.
  if last_arrival then
    redis.pcall('SADD', UNSETTLED, last_arrival)
  elseif unused_request then
    redis.pcall('DEL', unused_request)
  end
  error(replies)
end
return replies

-- Merges what is due, the longest first. Endpoints, their types, and the events of these are each in a sorted set by
-- when their first is due, so that only the next ones are read. A heap has the next item of each set that was begun.
-- name: due
-- needs: base
local heap, heap_size = {}, 0

local function is_before(one, other)
  if one.time ~= other.time then
    return one.time < other.time
  end
  return one.arrival < other.arrival
end

local function heap_push(item)
  heap_size = heap_size + 1
  local at = heap_size
  while at > 1 do
    local parent = math.floor(at / 2)
    if not is_before(item, heap[parent]) then
      break
    end
    heap[at] = heap[parent]
    at = parent
  end
  heap[at] = item
end

local function heap_pop()
  local first, last = heap[1], heap[heap_size]
  heap[heap_size] = nil
  heap_size = heap_size - 1
  local at = 1
  while heap_size > 0 do
    local child = 2 * at
    if child < heap_size and is_before(heap[child + 1], heap[child]) then
      child = child + 1
    end
    if child > heap_size or not is_before(heap[child], last) then
      heap[at] = last
      break
    end
    heap[at] = heap[child]
    at = child
  end
  return first
end

-- Pushes the next item of a set, and returns it; nil at the end.
local function advance(cursor)
  if cursor.at > #cursor.page and cursor.count then
    cursor.page = redis.call('ZRANGEBYSCORE', cursor.key, '-inf', cursor.bound, 'WITHSCORES', 'LIMIT', cursor.offset,
      cursor.count)
    cursor.at, cursor.offset = 1, cursor.offset + cursor.count
    cursor.count = #cursor.page == 2 * cursor.count and math.min(2 * cursor.count, 128) or nil
  end
  local member = cursor.page[cursor.at]
  if member then
    heap_push({ time = tonumber(cursor.page[cursor.at + 1]), arrival = cursor.event_type and member or '',
      member = member, cursor = cursor })
    cursor.at = cursor.at + 2
  end
  return member
end

local function begin(key, from)
  local cursor = { key = key, page = {}, at = 1, offset = 0, count = from.event_type and 2 or 16, bound = from.bound,
    class = from.class, endpoint = from.endpoint, event_type = from.event_type }
  return advance(cursor)
end

-- Begins with these endpoints, or with all.
local function begin_due(endpoints, at)
  for class, bound in pairs({ [UNTRIED] = '+inf', [TRIED] = at }) do
    if not endpoints then
      begin(endpoints_key(class), { class = class, bound = bound })
    else
      for _, endpoint in ipairs(endpoints) do
        local due = tonumber(redis.call('ZSCORE', endpoints_key(class), endpoint) or nil)
        if due then
          heap_push({ time = due, arrival = '', member = endpoint,
            cursor = { class = class, bound = bound, page = {}, at = 1 } })
        end
      end
    end
  end
end

-- Returns the next due event of a kind that there is room for. Types that are listed without an event go into `empty`.
local function next_due(has_room, empty)
  while heap_size > 0 do
    local item = heap_pop()
    local from = item.cursor
    if not from.endpoint then
      advance(from)
      if has_room(item.member) then
        begin(types_key(from.class, item.member), { class = from.class, bound = from.bound, endpoint = item.member })
      end
    elseif has_room(from.endpoint) and not from.event_type then
      advance(from)
      local kind = { class = from.class, bound = from.bound, endpoint = from.endpoint, event_type = item.member }
      if has_room(from.endpoint, item.member) and not begin(due_key(from.class, from.endpoint, item.member), kind) then
        empty[#empty + 1] = kind
      end
    elseif from.event_type and has_room(from.endpoint, from.event_type) then
      advance(from)
      return { arrival = item.member, time = item.time, class = from.class, endpoint = from.endpoint,
        type = from.event_type }
    end
  end
end

-- Leases the events that have been due the longest. ARGV: prefix; limit; lease; the failures of lapsed attempts and of
-- unreadable events; the number of endpoints, and these; how many events of each endpoint, empty for any, the number of
-- endpoints with another limit, and these with their limits; the same for types; and as many tokens as the limit is.
-- name: lease
-- needs: repair, due
local limit, lease, LAPSED, UNREADABLE = tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], ARGV[5]
-- Small requests come with the reply up to a total; the others are read by their names. PAGE bounds the other work.
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

local function take_room(endpoint, event_type)
  per_endpoint.left[endpoint] = left(per_endpoint, endpoint) - 1
  per_type.left[event_type] = left(per_type, event_type) - 1
end

-- Makes events leasable whose lease has lapsed. They stay among the running ones, under the token of their last holder.
-- Returns whether there may be more.
local function find_lapsed()
  local found = redis.call('ZRANGEBYSCORE', RUNNING, '-inf', at, 'WITHSCORES', 'LIMIT', 0, PAGE)
  for index = 1, #found, 2 do
    local arrival, ended = found[index], found[index + 1]
    local entry = entry_at(arrival)
    local record = entry and unfinished_record(arrival, entry)
    note_change(arrival)
    if record and is_running(record) then
      add_due(TRIED, entry.endpoint, entry.type, arrival, ended)
      redis.call('ZADD', RUNNING, '+inf', arrival)
    else
      repair(arrival, entry)
    end
  end
  return #found == 2 * PAGE
end

-- Says whether an event that is listed as due can be leased.
local function may_run(arrival, entry, record)
  if is_running(record) then
    local ends = redis.call('ZSCORE', RUNNING, arrival)
    return not ends or ends == 'inf' or tonumber(ends) <= at
  end
  return entry.order == '' or redis.call('ZRANGE', ORDER .. entry.order, 0, 0)[1] == arrival
end

-- Chooses as many events as there is room for. Unreadable events, and events that are listed as due and are not, are
-- returned apart.
local function choose()
  local chosen, unreadable, misplaced, empty, seen, size, is_drained = {}, {}, {}, {}, {}, 0, false
  begin_due(endpoints, at)
  while #chosen < limit and size < ENOUGH and #misplaced + #unreadable < PAGE do
    local event = next_due(has_room, empty)
    if not event then
      is_drained = true
      break
    end
    event.entry = not seen[event.arrival] and entry_at(event.arrival)
    event.record = event.entry and unfinished_record(event.arrival, event.entry)
    local into = misplaced
    if event.record and (event.entry.is_unreadable or event.record.is_unreadable) then
      into = unreadable
    elseif event.record and may_run(event.arrival, event.entry, event.record) then
      into = chosen
      seen[event.arrival] = true
      size = size + event.entry.size
      take_room(event.endpoint, event.type)
    end
    into[#into + 1] = event
  end
  return chosen, unreadable, misplaced, empty, is_drained
end

-- Removes events from the due ones of the kinds where they were found.
local function remove_from_kinds(events, empty)
  local types, all_endpoints = {}, {}
  for _, event in ipairs(events) do
    local key = due_key(event.class, event.endpoint, event.type)
    types[key] = types[key] or { event = event, arrivals = {} }
    table.insert(types[key].arrivals, event.arrival)
  end
  for key, of_type in pairs(types) do
    redis.call('ZREM', key, unpack(of_type.arrivals))
    empty[#empty + 1] = { class = of_type.event.class, endpoint = of_type.event.endpoint,
      event_type = of_type.event.type }
  end
  for _, kind in ipairs(empty) do
    refresh_type(kind.class, kind.endpoint, kind.event_type)
    all_endpoints[kind.class .. kind.endpoint] = kind
  end
  for _, kind in pairs(all_endpoints) do
    refresh_endpoint(kind.class, kind.endpoint)
  end
end

local function add_running(chosen)
  local command = { 'ZADD', RUNNING }
  for _, event in ipairs(chosen) do
    note_change(event.arrival)
    command[#command + 1] = string.format('%d', at + lease)
    command[#command + 1] = event.arrival
  end
  if #chosen > 0 then
    redis.call(unpack(command))
  end
end

-- Writes the record of a leased event, and returns its row for the worker.
local function start(event, token)
  local entry, record = event.entry, event.record
  if is_running(record) then
    add_failure(record, at, LAPSED)
  else
    record.was_due_at = record.time
  end
  record.attempts, record.token = record.attempts + 1, token
  write_unfinished(key_of(entry.key), record, 'r', at)
  local last = entry.sequence ~= '' and redis.call('HGET', APPLIED, entry.order)
  local superseded = last and last >= entry.sequence
  return { record.attempts, superseded and 1 or 0, record.is_started and 1 or 0, record.fingerprint, entry.encoded,
    false }
end

local function add_requests(rows, chosen)
  local size = 0
  for index, event in ipairs(chosen) do
    local entry = event.entry
    if entry.size <= SMALL and size + entry.size <= ALL_SMALL then
      size = size + entry.size
      rows[index][6] = redis.call('GET', REQUEST .. entry.request)
    end
  end
end

local function bury_unreadable(event)
  local record, key = event.record, key_of(event.entry.key)
  note_change(event.arrival)
  bury(key, event.arrival, event.entry, record, at, UNREADABLE, UNREADABLE)
  return event.entry.key
end

-- Returns the id of the last entry, from which the listener is to wait for new ones.
local function last_id()
  local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
  return last and last[1] or '0-0'
end

return noting_failure(function()
  repair_unsettled(PAGE / 5)
  local has_expired = purge(at, PAGE)
  local has_lapsed = find_lapsed()
  local chosen, unreadable, misplaced, empty, is_drained = choose()
  -- Running before they are removed from the due ones: if anything fails from here on, the lease lapses.
  add_running(chosen)
  local rows, buried = {}, {}
  for index, event in ipairs(chosen) do
    rows[index] = start(event, argument())
  end
  add_requests(rows, chosen)
  remove_from_kinds(chosen, empty)
  for index, event in ipairs(unreadable) do
    buried[index] = bury_unreadable(event)
  end
  remove_from_kinds(unreadable, {})
  -- The next lease repairs these.
  for _, event in ipairs(misplaced) do
    redis.call('SADD', UNSETTLED, event.arrival)
  end
  remove_from_kinds(misplaced, {})
  local is_all = is_drained and not has_lapsed and #misplaced == 0
  return { rows, buried, is_all and last_id(), is_all and 0 or 1, has_expired }
end)

-- Looks at some of the running events for those of one lease. Returns where to go on, and the keys and tokens of these
-- events. ARGV: prefix, how the lease's tokens begin, where to go on, how many events to look at.
-- name: find_leased
-- needs: transitions
local LEASE, rows = ARGV[2], {}
local found = redis.call('ZSCAN', RUNNING, ARGV[3], 'COUNT', ARGV[4])
local members = found[2]
for index = 1, #members, 2 do
  local arrival = members[index]
  local entry = entry_at(arrival)
  local record = entry and read_record(key_of(entry.key))
  local is_held = record and record.arrival == arrival and is_running(record)
  if is_held and string.sub(record.token, 1, #LEASE) == LEASE then
    rows[#rows + 1] = { entry.key, record.token }
  end
end
return { found[1], rows }

-- Changes an event that a worker holds. Returns 'held'; 'lost' if it does not hold the event; 'inline' if an inline
-- claim has it. An event that was settled in the same way before is held as well: the reply was lost. KEYS: the record.
-- ARGV: prefix, token.
-- name: change_held
-- needs: transitions
local function change_held(settled, change)
  local record = read_record(KEYS[1])
  local refusal = refusal_of(record, KEYS[1], ARGV[2])
  if refusal then
    return refusal
  end
  if record.state == settled then
    -- Written again, unchanged: from Redis 7.2 on, WAIT is about the writes of its own connection.
    redis.call('SET', KEYS[1], record.value, 'KEEPTTL')
    return 'held'
  end
  if not is_running(record) then
    return 'lost'
  end
  return noting_failure(function()
    change(record)
    return 'held'
  end)
end

-- Extends a lease. More ARGV: lease, and '1' if the event's handler is about to be called.
-- name: renew
-- needs: change_held
return change_held(nil, function(record)
  local ends = redis.call('ZSCORE', RUNNING, record.arrival)
  note_change(record.arrival)
  -- First: a lapsed event that is not held is only found among the due ones.
  redis.call('ZADD', RUNNING, string.format('%d', now() + tonumber(ARGV[3])), record.arrival)
  if ARGV[4] == '1' and not record.is_started then
    record.is_started = true
    write_unfinished(KEYS[1], record, 'r', record.time)
  end
  local entry = (not ends or ends == 'inf') and entry_at(record.arrival)
  if entry then
    remove_due(TRIED, entry.endpoint, entry.type, record.arrival)
  end
end)

-- Completes a leased event. More ARGV: retention, how long the request is kept, summary.
-- name: complete
-- needs: change_held
return change_held('c', function(record)
  local at, retention, entry = now(), tonumber(ARGV[3]), entry_at(record.arrival)
  note_change(record.arrival)
  if entry then
    note_applied(entry)
  end
  -- From here on it is completed: if the rest fails, a repair goes by the record.
  write_record(KEYS[1], 'c', record, at, ARGV[5], 'PX', retention)
  remove_running(record.arrival, entry)
  if entry then
    redis.call('ZADD', COMPLETED, string.format('%d', at + retention), record.arrival)
    expire_request(entry, tonumber(ARGV[4]))
    leave_order(record.arrival, entry)
  end
end)

-- Buries a leased event. More ARGV: reason, the reason on one line.
-- name: bury
-- needs: change_held
return change_held('f', function(record)
  note_change(record.arrival)
  bury(KEYS[1], record.arrival, entry_at(record.arrival), record, now(), ARGV[3], ARGV[4])
end)

-- Makes a leased event wait again. KEYS: the record. ARGV: prefix, token, and for a retry the delay and the reason on
-- one line. Without these it is a release: not an attempt, and due since when it was due before.
-- name: release
-- needs: transitions
local record = read_record(KEYS[1])
local refusal = refusal_of(record, KEYS[1], ARGV[2])
if refusal then
  return refusal
end
if record.state ~= 'a' then
  return 'lost'
end
if is_waiting(record) then
  return 'held'
end
local entry = is_running(record) and entry_at(record.arrival)
if not entry then
  return 'lost'
end
return noting_failure(function()
  local at = now()
  note_change(record.arrival)
  if ARGV[3] then
    add_failure(record, at, ARGV[4])
    record.time = at + tonumber(ARGV[3])
  else
    record.attempts, record.time, record.is_started = record.attempts - 1, record.was_due_at, false
  end
  write_unfinished(KEYS[1], record, 'w', record.time)
  remove_running(record.arrival, entry)
  add_waiting(record.arrival, entry, record)
  return 'held'
end)
