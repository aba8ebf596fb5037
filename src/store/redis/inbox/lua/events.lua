-- What all scripts share. ARGV[1] is the store's prefix; every name begins with it, so that a hash tag in it keeps them in one slot.
if not redis.REDIS_VERSION_NUM then
  return redis.error_reply('ERR the inbox needs Redis 7.0 or later, or Valkey')
end
local PREFIX = ARGV[1] .. 'inbox:'
local EVENTS, PARCEL, LINE, UNSETTLED = PREFIX .. 'events', PREFIX .. 'parcel:', PREFIX .. 'line', PREFIX .. 'unsettled'
-- The two classes of events that wait. Those that were never tried are due whatever the clock says: it may have been set back since
-- they came. Others are due when their time has come.
local UNTRIED, TRIED = 'u', 't'

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

-- Puts what is known of an event behind all others, and says as which arrival.
local function add(facts)
  local id = redis.call('XADD', EVENTS, '*', 'e', facts)
  local ms, number = string.match(id, '^(%d+)%-(%d+)$')
  if #number > 6 then
    -- A million within a millisecond: the server's clock was set back. An arrival's number has no room for more.
    redis.call('XDEL', EVENTS, id)
    ms, number = string.format('%d', ms + 1), '0'
    redis.call('XADD', EVENTS, ms .. '-0', 'e', facts)
  end
  return numbered(ms, number)
end

local function due_key(class, endpoint, event_type)
  return PREFIX .. 'due:' .. class .. #endpoint .. ':' .. endpoint .. event_type
end

local function types_key(class, endpoint)
  return PREFIX .. 'types:' .. class .. endpoint
end

local function endpoints_key(class)
  return PREFIX .. 'endpoints:' .. class
end

-- Has an event among those that are due. Of each type, and of each endpoint, the time of the first one is known.
local function push(class, endpoint, event_type, number, due)
  redis.call('ZADD', due_key(class, endpoint, event_type), due, number)
  redis.call('ZADD', types_key(class, endpoint), 'LT', due, event_type)
  redis.call('ZADD', endpoints_key(class), 'LT', due, endpoint)
end
