-- All that is kept of one event. KEYS: the claim. ARGV: prefix.
local record = read(KEYS[1])
local entry = record and record.number and entry_at(record.number)
if not entry or claim_key(entry.key) ~= KEYS[1] then
  return false
end
return { record.value, entry.parts, entry.body, redis.call('HGET', FAILURES, record.number) }
