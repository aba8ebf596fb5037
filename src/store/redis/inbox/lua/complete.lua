-- Completes a leased event. KEYS: the claim. ARGV: prefix, token, retention, summary.
local record = read(KEYS[1])
if not record or record.state == 'r' then
  return 'plain'
end
if record.token ~= ARGV[2] then
  return 'lost'
end
if record.state == 'c' then
  -- Written again as it is: from Redis 7.2 on WAIT is about what its own connection wrote.
  redis.call('SET', KEYS[1], record.value, 'KEEPTTL')
  return 'held'
end
if not is_running(record) then
  return 'lost'
end
local at, retention = now(), tonumber(ARGV[3])
end_order(record, true)
redis.call('ZADD', COMPLETED, at + retention, record.number)
write(KEYS[1], 'c', record, at, ARGV[4], 'PX', retention)
let_go(record)
return 'held'
