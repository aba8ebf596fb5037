-- Gives a leased event up. KEYS: the claim. ARGV: prefix, token, reason, the reason on one line.
local record = read(KEYS[1])
local refusal = refusal_of(record, KEYS[1], ARGV[2])
if refusal then
  return refusal
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
