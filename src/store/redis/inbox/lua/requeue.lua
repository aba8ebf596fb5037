-- Has events run again, and says how many there were, and of how many the body is gone. ARGV: prefix, which states, then for each its
-- key, its arrival and a token.
local requeued, without_body, at = 0, 0, now()

local function requeue(claim, record, entry, token)
  local old = record.number
  touch(old)
  redis.call('PERSIST', PARCEL .. entry.parcel)
  -- The old one goes last: if the script fails, one of them is there.
  record.number = add(entry.facts)
  touch(record.number)
  local log = redis.call('HGET', FAILURES, old)
  if log then
    redis.call('HSET', FAILURES, record.number, log)
  end
  -- Nobody's token: whoever gave it up must not be taken for the one that puts it back.
  record.token, record.attempts, record.time, record.is_ordered = token, 0, at, entry.order ~= ''
  write_open(claim, record, 'w', at)
  offer(record.number, entry, record)
  redis.call('ZREM', record.state == 'f' and DEAD or COMPLETED, old)
  redis.call('HDEL', FAILURES, old)
  redis.call('XDEL', EVENTS, id_of(old))
  requeued = requeued + 1
end

return guarded(function()
  for index = 3, #ARGV, 3 do
    local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
    local record = read(claim)
    local is_meant = record and record.number == number and string.find(ARGV[2], record.state, 1, true)
    local entry = is_meant and entry_at(number)
    if entry and redis.call('EXISTS', PARCEL .. entry.parcel) == 1 then
      requeue(claim, record, entry, ARGV[index + 2])
    elseif entry then
      without_body = without_body + 1
    end
  end
  return { requeued, without_body }
end)
