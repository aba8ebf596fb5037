-- What all scripts share. ARGV[1] is the store's prefix; every name begins with it, so that a hash tag in it keeps them in one slot.
if not redis.REDIS_VERSION_NUM then
  return redis.error_reply('ERR the inbox needs Redis 7.0 or later, or Valkey')
end
local PREFIX = ARGV[1] .. 'inbox:'
local EVENTS = PREFIX .. 'events'

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- What is under a claim's key: false, if nothing is; nil, if it is no string, and so no record.
local function value_of(claim)
  local value = redis.pcall('GET', claim)
  if type(value) ~= 'table' then
    return value
  end
  if not string.find(value.err, 'WRONGTYPE', 1, true) then
    error(value)
  end
  return nil
end

-- The parts of an entry's id as the number of its arrival: always 19 digits, so that they sort as text.
local function numbered(ms, number)
  return ms .. string.sub('000000', #number + 1) .. number
end

local function number_of(id)
  return numbered(string.match(id, '^(%d+)%-(%d+)$'))
end

-- Puts what is in an entry behind all others, and says as which arrival.
local function add(parts, body)
  local id = redis.call('XADD', EVENTS, '*', 'e', parts, 'b', body)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  if #number > 6 then
    -- A million within a millisecond: the server's clock was set back. An arrival's number has no room for more.
    redis.call('XDEL', EVENTS, id)
    ms, number = string.format('%d', ms + 1), '0'
    redis.call('XADD', EVENTS, ms .. '-0', 'e', parts, 'b', body)
  end
  return numbered(ms, number)
end
