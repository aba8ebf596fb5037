-- Gives a leased event up. KEYS: the claim. ARGV: prefix, token, reason, the reason on one line.
local record = read(KEYS[1])
if not record or record.state == 'r' then
  return 'plain'
end
if record.token ~= ARGV[2] then
  return 'lost'
end
if record.state == 'f' then
  redis.call('SET', KEYS[1], record.value, 'KEEPTTL')
  return 'held'
end
if not is_running(record) then
  return 'lost'
end
local at = now()
add_failure(record, at, ARGV[4])
end_order(record, false)
redis.call('ZADD', DEAD, 0, record.number)
write(KEYS[1], 'f', record, at, ARGV[3])
let_go(record)
return 'held'
