-- All that is kept of one event. KEYS: the claim. ARGV: prefix.
local record = read(KEYS[1])
local entry = record and record.number and entry_of(record.number)
if not entry or claim_key(entry[KEY]) ~= KEYS[1] then
  return false
end
return { record.value, entry, redis.call('HGET', FAILURES, record.number) }
