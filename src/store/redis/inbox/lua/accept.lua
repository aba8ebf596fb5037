-- Accepts events, and answers for each with what is in its way. KEYS: the claim of the first. ARGV: prefix, whether replicas are waited
-- for; then of each event its claim, its record without the end, how it waits, and what is in its entry.
local IS_REPLICATED, EACH = ARGV[2] == '1', 5
-- Due since now, and not since what its id says: if the server's clock was set back, that is to come.
local due = string.format(' 0 %d ', now())

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

local function accept(claim, record, how, parts, body)
  local found = value_of(claim)
  if found == nil then
    -- It is in nobody else's way.
    return ''
  end
  if found then
    return answer(found, claim, record)
  end
  redis.call('SET', claim, record .. '@' .. add(parts, body) .. due .. how)
  return false
end

local answers = {}
for at = 3, #ARGV, EACH do
  answers[#answers + 1] = accept(unpack(ARGV, at, at + EACH - 1))
end
return answers
