-- Has events never run. ARGV: prefix, retention, summary, then for each its key and its arrival.
local discarded, at, retention = 0, now(), tonumber(ARGV[2])
for index = 4, #ARGV, 2 do
  local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
  local record = read(claim)
  local entry = record and record.number == number and (record.state == 'f' or is_waiting(record)) and entry_of(number)
  if entry then
    write(claim, 'c', record, at, ARGV[3], 'PX', retention)
    redis.call('ZADD', COMPLETED, at + retention, number)
    redis.call('ZREM', DEAD, number)
    take_up(number, kind_of(entry))
    leave_line(number, entry, true)
    discarded = discarded + 1
  end
end
return discarded
