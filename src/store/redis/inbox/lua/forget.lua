-- Deletes completed and dead events. ARGV: prefix, then for each its key and its arrival.
local forgotten = 0
for index = 2, #ARGV, 2 do
  local claim, number = claim_key(ARGV[index]), ARGV[index + 1]
  local record = read(claim)
  if record and record.number == number and record.state ~= 'a' then
    redis.call('DEL', claim)
    redis.call('XDEL', EVENTS, id_of(number))
    redis.call('ZREM', record.state == 'f' and DEAD or COMPLETED, number)
    redis.call('HDEL', FAILURES, number)
    forgotten = forgotten + 1
  end
end
if forgotten > 0 then
  tidy()
end
return forgotten
