-- Accepts events, and answers for each with what is in its way; with '?', if its parcel has to be brought first. KEYS: the claim of the
-- first. ARGV: prefix, whether replicas are waited for; then of each event its claim, its record without the end, what is known of
-- it, its endpoint, type, order, the name of its parcel, and the parcel, unless it is a large one and comes by itself.
local IS_REPLICATED, EACH = ARGV[2] == '1', 8
-- Due since now, and not since what its id says: if the server's clock was set back, that is to come.
local at = now()
local parcel_of_none, number_of_last
-- The kinds whose first is known to be due by now.
local known = {}

local function answer(found, claim, record)
  -- Written again as it is: from Redis 7.2 on WAIT is about what its own connection wrote.
  if IS_REPLICATED and string.sub(found, 1, 1) == 'a' then
    redis.call('SET', claim, found)
  end
  -- Accepted before under the same token, and nothing has come of it yet: the reply was lost.
  if string.sub(found, 1, 25) == string.sub(record, 1, 25) and string.find(found, ' w', 38, true) then
    return false
  end
  return found
end

local function accept(claim, record, facts, endpoint, event_type, order, name, parcel)
  local found = value_of(claim)
  if found == nil then
    -- It is in nobody else's way.
    return ''
  end
  if found then
    return answer(found, claim, record)
  end
  parcel_of_none, number_of_last = PARCEL .. name, nil
  if parcel ~= '' then
    redis.call('SET', PARCEL .. name, parcel)
  elseif redis.call('EXISTS', PARCEL .. name) == 1 then
    redis.call('PERSIST', PARCEL .. name)
  else
    return '?'
  end
  local number = add(facts)
  parcel_of_none, number_of_last = nil, number
  redis.call('SET', claim, record .. '@' .. number .. string.format(' 0 %d w', at) .. (order == '' and '' or 'o'))
  local line = LINE .. order
  if order == '' or redis.call('ZADD', line, 0, number) and redis.call('ZRANGE', line, 0, 0)[1] == number then
    local key = due_key(UNTRIED, endpoint, event_type)
    if known[key] then
      redis.call('ZADD', key, at, number)
    else
      push(UNTRIED, endpoint, event_type, number, at)
      known[key] = true
    end
  end
  return false
end

local function accept_all()
  local answers = {}
  for index = 3, #ARGV, EACH do
    answers[#answers + 1] = accept(unpack(ARGV, index, index + EACH - 1))
  end
  return answers
end

local is_done, answers = pcall(accept_all)
if not is_done then
  -- What was done until now stays. The next lease finds out what is missing.
  if number_of_last then
    redis.pcall('SADD', UNSETTLED, number_of_last)
  elseif parcel_of_none then
    redis.pcall('DEL', parcel_of_none)
  end
  error(answers)
end
return answers
