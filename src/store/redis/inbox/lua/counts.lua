-- How many events are in each state, when the oldest that is due was received, and the last arrival. ARGV: prefix.
local at = now()
purge(at, 1000)
local running, dead, completed = pending(), redis.call('ZCARD', DEAD), redis.call('ZCARD', COMPLETED)
local waiting = redis.call('XLEN', EVENTS) - running - completed - dead
local oldest = false
local function consider(entry)
  if entry and not (oldest and tonumber(oldest) <= tonumber(entry.received)) then
    oldest = entry.received
  end
end
if waiting > 0 then
  for _, kind in ipairs(redis.call('SMEMBERS', KINDS)) do
    local first = redis.call('ZRANGEBYSCORE', PREFIX .. 'due:' .. kind, '-inf', at, 'LIMIT', 0, 1)[1]
    local entry = first and entry_at(first)
    local record = entry and read(claim_key(entry.key))
    consider(record and is_waiting(record) and entry)
  end
  local from, groups = '-', redis.pcall('XINFO', 'GROUPS', EVENTS)
  for _, group in ipairs(groups.err and {} or groups) do
    for index = 1, #group, 2 do
      if group[index] == 'last-delivered-id' and group[2] == GROUP then
        from = '(' .. group[index + 1]
      end
    end
  end
  -- Nobody has read these yet. The first may have been discarded.
  for _, item in ipairs(redis.call('XRANGE', EVENTS, from, '+', 'COUNT', 8)) do
    local entry = entry_of(item[2])
    local record = entry and read(claim_key(entry.key))
    if record and is_waiting(record) then
      consider(entry)
      break
    end
  end
end
local last, stream = false, redis.pcall('XINFO', 'STREAM', EVENTS)
for index = 1, stream.err and 0 or #stream, 2 do
  if stream[index] == 'last-generated-id' then
    last = number_of(stream[index + 1])
  end
end
return { waiting, running, redis.call('ZCOUNT', COMPLETED, at, '+inf'), dead, oldest, last }
