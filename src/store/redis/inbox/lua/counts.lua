-- How many events are in each state, when the oldest that is due was received, and the last arrival. ARGV: prefix.
local at, LOOKED_AT = now(), 16
purge(at, 100)

local function oldest_received()
  local oldest
  begin_due(nil, at)
  for _ = 1, LOOKED_AT do
    local event = next_due(function() return true end, {})
    local entry = event and entry_at(event.number)
    local record = entry and open_record(event.number, entry)
    if record and is_waiting(record) and not (oldest and oldest <= tonumber(entry.received)) then
      oldest = tonumber(entry.received)
    end
    if not event then
      break
    end
  end
  return oldest and string.format('%d', oldest)
end

local running, dead, completed = redis.call('ZCARD', RUNNING), redis.call('ZCARD', DEAD), redis.call('ZCARD', COMPLETED)
local waiting = redis.call('XLEN', EVENTS) - running - completed - dead
local last = redis.call('XREVRANGE', EVENTS, '+', '-', 'COUNT', 1)[1]
return { waiting, running, redis.call('ZCOUNT', COMPLETED, string.format('%d', at), '+inf'), dead,
  waiting > 0 and oldest_received() or false, last and number_of(last[1]) or false }
