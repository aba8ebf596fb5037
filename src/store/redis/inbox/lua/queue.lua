-- What is due, the longest first: endpoints, their types and the events of these are each in a sorted set by when their first is due, so
-- that only those are looked at that are next. A heap has the next one of each that was begun.
local heap, heap_size = {}, 0

local function is_before(one, other)
  if one.time ~= other.time then
    return one.time < other.time
  end
  return one.number < other.number
end

local function put(item)
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

local function take()
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

-- Reads on, and says whether there was any more.
local function advance(cursor)
  if cursor.at > #cursor.page and cursor.count then
    cursor.page = redis.call('ZRANGEBYSCORE', cursor.key, '-inf', cursor.bound, 'WITHSCORES', 'LIMIT', cursor.offset, cursor.count)
    cursor.at, cursor.offset = 1, cursor.offset + cursor.count
    cursor.count = #cursor.page == 2 * cursor.count and math.min(2 * cursor.count, 128) or nil
  end
  local member = cursor.page[cursor.at]
  if member then
    put({ time = tonumber(cursor.page[cursor.at + 1]), number = cursor.event_type and member or '', member = member,
      cursor = cursor })
    cursor.at = cursor.at + 2
  end
  return member
end

local function begin(key, from)
  local cursor = { key = key, page = {}, at = 1, offset = 0, count = from.event_type and 2 or 16, bound = from.bound, class = from.class,
    endpoint = from.endpoint, event_type = from.event_type }
  return advance(cursor)
end

-- Begins with all endpoints, or with these.
local function begin_due(endpoints, at)
  for class, bound in pairs({ [UNTRIED] = '+inf', [TRIED] = at }) do
    if not endpoints then
      begin(endpoints_key(class), { class = class, bound = bound })
    else
      for _, endpoint in ipairs(endpoints) do
        local due = tonumber(redis.call('ZSCORE', endpoints_key(class), endpoint) or nil)
        if due then
          put({ time = due, number = '', member = endpoint, cursor = { class = class, bound = bound, page = {}, at = 1 } })
        end
      end
    end
  end
end

-- The next event that is due of those kinds that there is room for. A type that is listed and has none is noted down in `empty`.
local function next_due(has_room, empty)
  while heap_size > 0 do
    local item = take()
    local from = item.cursor
    if not from.endpoint then
      advance(from)
      if has_room(item.member) then
        begin(types_key(from.class, item.member), { class = from.class, bound = from.bound, endpoint = item.member })
      end
    elseif has_room(from.endpoint) and not from.event_type then
      advance(from)
      local of_type = { class = from.class, bound = from.bound, endpoint = from.endpoint, event_type = item.member }
      if has_room(from.endpoint, item.member) and not begin(due_key(from.class, from.endpoint, item.member), of_type) then
        empty[#empty + 1] = of_type
      end
    elseif from.event_type and has_room(from.endpoint, from.event_type) then
      advance(from)
      return { number = item.member, time = item.time, class = from.class, endpoint = from.endpoint, type = from.event_type }
    end
  end
end
