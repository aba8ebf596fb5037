-- Has events never run. ARGV: prefix, retention, summary, then for each its key, its arrival and a token.
local discarded, at, retention = 0, now(), tonumber(ARGV[2])
for index = 4, #ARGV, 3 do
  local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
  local record = read(claim)
  local entry = record and record.number == number and (record.state == 'f' or is_waiting(record)) and entry_at(number)
  if entry then
    leave_line(number, entry, false)
    redis.call('ZADD', COMPLETED, at + retention, number)
    -- Nobody's token: whoever had it last must not take this for its own completion.
    record.token = ARGV[index + 2]
    write(claim, 'c', record, at, ARGV[3], 'PX', retention)
    redis.call('ZREM', DEAD, number)
    take_up(number, kind_of(entry))
    discarded = discarded + 1
  end
end
return discarded
