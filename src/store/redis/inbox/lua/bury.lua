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
return guarded(function()
  touch(record.number)
  bury(KEYS[1], record.number, entry_at(record.number), record, now(), ARGV[3], ARGV[4])
  return 'held'
end)
