-- Accepts an event, or answers with what is in its way. KEYS: the claim. ARGV: the stream, the record without its end, the token,
-- whether replicas are waited for, whether it is ordered, then the fields of the entry.
if not redis.REDIS_VERSION_NUM then
  return redis.error_reply('ERR the inbox needs Redis 7.0 or later, or Valkey')
end
local found = redis.call('GET', KEYS[1])
if found then
  -- Written again as it is: from Redis 7.2 on WAIT is about what its own connection wrote.
  if ARGV[4] == '1' and string.sub(found, 1, 1) == 'a' then
    redis.call('SET', KEYS[1], found)
  end
  -- Accepted before under the same token, and nothing has come of it yet: the reply was lost.
  if string.sub(found, 1, 25) == 'a:' .. ARGV[3] .. ':' and string.find(found, ' w', 38, true) then
    return false
  end
  return found
end
local id = redis.call('XADD', ARGV[1], '*', 'k', ARGV[6], 't', ARGV[7], 'f', ARGV[8], 'r', ARGV[9], 'o', ARGV[10],
  'q', ARGV[11], 'h', ARGV[12], 'b', ARGV[13])
local ms, number = string.match(id, '^(%d+)%-(%d+)$')
if #number > 6 then
  -- A million within a millisecond: the server's clock was set back. An arrival's number has no room for more.
  redis.call('XDEL', ARGV[1], id)
  ms, number = string.format('%d', ms + 1), '0'
  redis.call('XADD', ARGV[1], ms .. '-0', 'k', ARGV[6], 't', ARGV[7], 'f', ARGV[8], 'r', ARGV[9], 'o', ARGV[10],
    'q', ARGV[11], 'h', ARGV[12], 'b', ARGV[13])
end
-- Due since now, and not since what its id says: if the server's clock was set back, that is to come.
local time = redis.call('TIME')
local now = string.format('%d', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('SET', KEYS[1], ARGV[2] .. '@' .. ms .. string.rep('0', 6 - #number) .. number .. ' 0 ' .. now .. ' w' .. ARGV[5])
return false
