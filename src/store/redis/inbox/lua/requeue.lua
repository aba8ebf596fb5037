-- Has events run again. ARGV: prefix, which states, then for each its key, its arrival and a token.
local requeued, at = 0, now()
for index = 3, #ARGV, 3 do
  local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
  local record = read(claim)
  local entry = record and record.number == number and string.find(ARGV[2], record.state, 1, true) and entry_at(number)
  if entry then
    local log = redis.call('HGET', FAILURES, number)
    -- The old one goes last: if the script fails, one of them is there.
    record.number = add(entry.parts, entry.body)
    if log then
      redis.call('HSET', FAILURES, record.number, log)
    end
    -- Nobody's token: whoever gave it up must not be taken for the one that puts it back.
    record.token, record.attempts = ARGV[index + 2], 0
    write(claim, 'a', record, at, entry.order == '' and 'w' or 'wo')
    redis.call('XDEL', EVENTS, id_of(number))
    redis.call('ZREM', record.state == 'f' and DEAD or COMPLETED, number)
    redis.call('HDEL', FAILURES, number)
    requeued = requeued + 1
  end
end
return requeued
